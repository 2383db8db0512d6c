package driver

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"sema/bench/internal/peers"
	"sema/bench/internal/wire"
	"sema/internal/redistest"
)

func options(url, contestant string) Options {
	return Options{URL: url, Contestant: contestant, Name: "s-" + contestant, Limit: 1, Workers: 4, Lease: 30 * time.Second}
}

// TestNothingIsLeftOver runs every contestant twice: of a limit of 1, the first
// must leave nothing held, or the second gets nothing for the whole lease.
func TestNothingIsLeftOver(t *testing.T) {
	server := redistest.Start(t)
	for _, p := range peers.All {
		if p.Driver != "" {
			continue
		}
		t.Run(p.Name, func(t *testing.T) {
			t.Parallel()
			for range 2 {
				var out bytes.Buffer
				in := strings.NewReader(`{"run_ms":30}` + "\n" + `{"quit":true}` + "\n")
				o := options(server.URL(), p.Name)
				o.Hold = time.Millisecond
				if err := Serve(t.Context(), o, in, &out); err != nil {
					t.Fatal(err)
				}
				lines := strings.Split(strings.TrimSpace(out.String()), "\n")
				var a wire.Answer
				if len(lines) != 2 || json.Unmarshal([]byte(lines[1]), &a) != nil {
					t.Fatalf("said %q", out.String())
				}
				// Basic and Fair let in too many at times: that is their flaw.
				flawed := p.Name == "classic-basic" || p.Name == "classic-fair"
				if a.Done < 1 || a.Unserved > 0 || a.MaxHeld > 1 && !flawed {
					t.Errorf("%+v", a)
				}
				if p.Pairs == 0 && (count(a.Waits) != a.Done || a.HoldNS < a.Done*int64(o.Hold)) {
					t.Errorf("%d waits of %d pairs, holds of %d ns together", count(a.Waits), a.Done, a.HoldNS)
				}
			}
		})
	}
}

func count(waits [][2]int64) int64 {
	var all int64
	for _, w := range waits {
		all += w[1]
	}
	return all
}

func TestMalformed(t *testing.T) {
	server := redistest.Start(t)
	for _, line := range []string{"", "{", `{"run_ms":0}`, `{"run_ms":"1"}`, `{"walk_ms":1}`, "null"} {
		var out bytes.Buffer
		err := Serve(t.Context(), options(server.URL(), "sema"), strings.NewReader(line+"\n"), &out)
		if err == nil || !strings.Contains(out.String(), `{"error":"malformed command`) {
			t.Errorf("%q: %v, said %s", line, err, out.String())
		}
	}
}

func TestRefused(t *testing.T) {
	server := redistest.Start(t)
	for what, change := range map[string]func(*Options){
		"unknown contestant":           func(o *Options) { o.Contestant = "nobody" },
		"has a driver of its own":      func(o *Options) { o.Contestant = "redisson-lock" },
		"limit 0":                      func(o *Options) { o.Limit = 0 },
		"limit 2: redsync has limit 1": func(o *Options) { o.Contestant, o.Limit = "redsync", 2 },
		"0 workers":                    func(o *Options) { o.Workers = 0 },
		"the URL of Redis":             func(o *Options) { o.URL = "x" },
		"no answer from Redis":         func(o *Options) { o.URL = "redis://127.0.0.1:1" },
		"sema: sema: lease 1ns: want":  func(o *Options) { o.Lease = 1 },
	} {
		o := options(server.URL(), "sema")
		change(&o)
		var out bytes.Buffer
		err := Serve(t.Context(), o, strings.NewReader(""), &out)
		if err == nil || !strings.Contains(err.Error(), what) || !strings.HasPrefix(out.String(), `{"error":`) {
			t.Errorf("%s: %v, said %s", what, err, out.String())
		}
	}
}

func TestTwoDigits(t *testing.T) {
	for in, want := range map[int64]int64{0: 0, 7: 7, 99: 99, 104: 100, 106: 110, 999: 1000, 123456: 120000} {
		if got := twoDigits(in); got != want {
			t.Errorf("twoDigits(%d) = %d, want %d", in, got, want)
		}
	}
}
