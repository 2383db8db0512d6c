package main

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"sema/internal/fixture/redistest"
	"sema/internal/measure"
)

// asProgram makes the test binary behave as the program: it is its own driver.
const asProgram = "PEERS_AS_PROGRAM"

func TestMain(m *testing.M) {
	if os.Getenv(asProgram) != "" {
		main()
		return
	}
	if err := os.Setenv(asProgram, "1"); err != nil { // for the children
		panic(err)
	}
	os.Exit(m.Run())
}

// TestDocsAreOfTheResults writes the page again: what is committed must be what
// the committed results say.
func TestDocsAreOfTheResults(t *testing.T) {
	r, err := load("results.json")
	if err != nil {
		t.Fatal(err)
	}
	files, err := render(r)
	if err != nil {
		t.Fatal(err)
	}
	pictures, _ := filepath.Glob("../docs/bench*")
	if len(pictures)+1 != len(files) {
		t.Errorf("docs has %v and data/bench.md, and %d files are made", pictures, len(files))
	}
	for name, want := range files {
		if got, err := os.ReadFile(filepath.Join("../docs", name)); err != nil || !bytes.Equal(got, want) {
			t.Errorf("docs/%s is not what bench/results.json says (%v); try: make bench-report", name, err)
		}
	}
}

// TestRun lets every contestant in Go take part twice. A limit of 1 is in it,
// so the first time must leave nothing held.
func TestRun(t *testing.T) {
	r := run{plan: measure.Plan{Rounds: 1, Round: 30 * time.Millisecond, Strict: true}, lease: 30 * time.Second, progress: func(string) {}}
	r.scenarios = []string{"alone", "memory-alone", "uncontended", "locks", "4x16-of-8", "memory-64-of-8"}
	names := map[string]bool{}
	for _, p := range all {
		if names[p.Name] {
			t.Errorf("two contestants are called %s", p.Name)
		}
		if names[p.Name] = true; p.driver == "" {
			r.contestants = append(r.contestants, p.Name)
		}
	}
	res, err := r.do(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if len(res.Scenarios) != 6 || res.Redis == "" || res.Versions["go"] == "" || !res.OwnServer {
		t.Errorf("run of %d scenarios, Redis %q, versions %v", len(res.Scenarios), res.Redis, res.Versions)
	}
	for _, c := range res.Scenarios {
		for _, s := range c.Contestants {
			if c.Laps > 0 {
				if one := s.Timed; one.Pairs < 1 || one.P10.Median > one.P50.Median || one.P50.Median > one.P90.Median || (one.ScriptP50NS > 0) && inMemory(c) {
					t.Errorf("%s: %s: %+v", c.Name, s.Name, one)
				}
				continue
			}
			one := s.Rounds[0]
			if one.Done < 1 || one.CPUNS < 1 || one.P50NS > one.P99NS || one.P99NS > one.LongestNS || (one.ScriptNS > 0) && inMemory(c) {
				t.Errorf("%s: %s: %+v", c.Name, s.Name, one)
			}
			// Basic and Fair let in too many at times: that is their flaw.
			if mostHeld(s) > int64(c.Limit) && s.Name != "classic-basic" && s.Name != "classic-fair" {
				t.Errorf("%s: %s let in %d", c.Name, s.Name, mostHeld(s))
			}
		}
	}
	if _, err := render(res); err != nil {
		t.Error(err)
	}
}

// TestRunGoesOnWithoutWhoFails has a driver that fails, and one that cannot be
// built.
func TestRunGoesOnWithoutWhoFails(t *testing.T) {
	tools := t.TempDir()
	t.Setenv("PATH", tools+string(os.PathListSeparator)+os.Getenv("PATH"))
	for tool, script := range map[string]string{"npm": "exit 0", "node": `echo '{"error":"broken"}'; exit 1`, "mvn": "echo no network; exit 1"} {
		if err := os.WriteFile(filepath.Join(tools, tool), []byte("#!/bin/sh\n"+script+"\n"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	server := redistest.Start(t)
	r := run{plan: measure.Plan{Rounds: 2, Round: 20 * time.Millisecond}, lease: 10 * time.Second, url: server.URL(), progress: func(string) {}}
	r.scenarios, r.contestants = []string{"uncontended"}, []string{"node-redis-semaphore", "redisson-lock"}
	res, err := r.do(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(res.LeftOut["redisson-lock"], "no network") {
		t.Errorf("left out: %v", res.LeftOut)
	}
	c := res.Scenarios[0]
	if sema, node := c.Series("sema"), c.Series("node-redis-semaphore"); len(sema.Rounds) != 2 || node.Failed != "broken" || len(c.Contestants) != 2 {
		t.Errorf("%+v", c.Contestants)
	}
	if n, err := server.Client().DBSize(t.Context()).Result(); err != nil || n > 0 || res.OwnServer {
		t.Errorf("%d keys left on a server that was given, %v", n, err)
	}
}

// TestRunGoesOn stops a run in its second scenario, and goes on with it.
func TestRunGoesOn(t *testing.T) {
	server := redistest.Start(t)
	out := filepath.Join(t.TempDir(), "results.json")
	again := func(ctx context.Context, goOn bool, progress func(string)) (*results, error) {
		r := run{plan: measure.Plan{Rounds: 1, Round: 20 * time.Millisecond}, lease: 10 * time.Second, url: server.URL(), out: out, goOn: goOn, progress: progress}
		r.scenarios, r.contestants = []string{"uncontended", "64-of-64"}, []string{"noop-pool"}
		return r.do(ctx)
	}
	ctx, stop := context.WithCancel(t.Context())
	_, err := again(ctx, false, func(text string) {
		if text == "64-of-64" {
			stop()
		}
	})
	if err == nil {
		t.Fatal("a run that was stopped found everything")
	}
	first, err := load(out + ".part")
	if err != nil || len(first.Scenarios) != 1 {
		t.Fatalf("%+v, %v", first, err)
	}
	res, err := again(t.Context(), true, func(text string) {
		if strings.HasPrefix(text, "uncontended") {
			t.Error("what was found was run again:", text)
		}
	})
	if err != nil || len(res.Scenarios) != 2 || res.Scenarios[1].Name != "64-of-64" || !reflect.DeepEqual(res.Scenarios[0], first.Scenarios[0]) {
		t.Fatalf("%+v, %v", res, err)
	}
	first.LeaseMS++
	if err := first.save(out + ".part"); err != nil {
		t.Fatal(err)
	}
	if _, err := again(t.Context(), true, func(string) {}); err == nil || !strings.Contains(err.Error(), "--go-on") {
		t.Errorf("a run with another lease went on: %v", err)
	}
}

func TestRefused(t *testing.T) {
	for args, want := range map[string]string{
		"":                              "no such command",
		"report x":                      "no such command",
		"report nowhere.json .":         "nowhere.json",
		"run --scenario nothing":        `unknown scenario "nothing"`,
		"run --contestant nobody":       `unknown contestant "nobody"`,
		"run --url redis://127.0.0.1:1": "no answer from Redis",
		"run --url ftp://127.0.0.1":     "the URL of Redis",
	} {
		if err := command(t.Context(), append(strings.Fields(args), "help")); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("peers %s: %v", args, err)
		}
	}
	for name, want := range map[string]string{"nobody": "unknown", "redisson-lock": "driver of its own", "redsync": "limit 1 only", "sema": "lease"} {
		_, err := openPeer(t.Context(), measure.Setup{URL: redistest.Start(t).URL(), Contestant: name, Name: "x", Limit: 2, LeaseMS: 1})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// did is a contestant with a round for each rate.
func did(name string, held int64, rates ...int64) measure.Series {
	s := measure.Series{Name: name}
	for _, rate := range rates {
		s.Rounds = append(s.Rounds, measure.Round{Done: rate, ElapsedNS: 1e9, MaxHeld: held, P99NS: 1e9 / rate, LongestNS: 2e9 / rate})
	}
	return s
}

func TestVerdict(t *testing.T) {
	broken := did("classic-fair", 1, 900)
	broken.Failed = "a|b"
	late := did("classic-locked", 8, 1)
	late.Rounds[0].Unserved = 3
	for want, others := range map[string][]measure.Series{
		"**`classic-basic` wins:** 2.00 times":                      {did("classic-basic", 8, 200, 220, 240)},
		"**`sema` wins;** next is `classic-basic`, which did 0.500": {did("classic-basic", 8, 50, 55, 60)},
		"No clear winner: `classic-basic` did 1.10 (0.909–1.20)":    {did("classic-basic", 8, 120, 100, 132)},
		"**`sema` wins;** next is `classic-locked`":                 {did("classic-basic", 9, 999), did("noop-pool", 0, 999), broken, late},
		"Only `sema` did it":                                        {broken},
	} {
		c := &measure.Case{Name: "64-of-8", Limit: 8, Contestants: append([]measure.Series{did("sema", 8, 100, 110, 120)}, others...)}
		if got := verdict(c); !strings.HasPrefix(got, want) {
			t.Errorf("verdict %q, want %q", got, want)
		}
		if slices.ContainsFunc(others, func(s measure.Series) bool { return s.Name == "noop-pool" }) {
			for _, says := range []string{"| `sema` | **110 (100–120)** |", "*`noop-pool`*", "over the limit: 9 at once", "failed: a/b", "3 callers not served in time"} {
				if got := table(c); !strings.Contains(got, says) {
					t.Errorf("no %q in\n%s", says, got)
				}
			}
		}
	}
}

func TestRender(t *testing.T) {
	files, err := render(&results{})
	if err != nil || !strings.Contains(string(files["data/bench.md"]), "Not part of this run.") {
		t.Errorf("of nothing: %v, %s", err, files["data/bench.md"])
	}
	r := &results{Scenarios: []*measure.Case{{Name: "64-of-8", Limit: 8, Contestants: []measure.Series{did("nobody", 1, 1)}}}}
	if _, err := render(r); err == nil || !strings.Contains(err.Error(), "nobody") {
		t.Errorf("of a stranger: %v", err)
	}
}

// A picture has sema, and of each library what made the most pairs and kept to the limit.
func TestDrawn(t *testing.T) {
	c := &measure.Case{Name: "64-of-8", Limit: 8, Contestants: []measure.Series{
		did("sema", 8, 100), did("sema-keep", 8, 300), did("sema-passes", 8, 400), did("sema-memory", 8, 900),
		did("classic-basic", 9, 999), did("classic-fair", 8, 50), did("classic-locked", 8, 40), did("classic-lock", 8, 90),
		did("redisson-go-permit", 8, 5), did("redisson-permit", 8, 6), did("redisson-semaphore", 8, 7), did("node-redis-semaphore", 8, 1), did("noop-pool", 0, 2000),
	}}
	var got []string
	for _, s := range drawn(c) {
		got = append(got, s.Name)
	}
	if want := []string{"sema", "sema-passes", "classic-fair", "redisson-go-permit", "redisson-semaphore", "node-redis-semaphore"}; !slices.Equal(got, want) {
		t.Errorf("%q, not %q", got, want)
	}
	got = nil
	for _, g := range (drawing{scenario: "64-of-8", column: rate}).chart(&results{Scenarios: []*measure.Case{c}}).Groups {
		got = append(got, g.Name+" "+g.Bars[0].Text)
	}
	if len(got) != 6 || got[1] != "sema-passes 400" {
		t.Errorf("%q", got)
	}
}

// A server that cannot be started is an error, and leaves nothing.
func TestNoServer(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("TMPDIR", dir)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, _, err := serve(ctx, "redis://127.0.0.1:1")
	left, _ := os.ReadDir(dir)
	if err == nil || len(left) > 0 {
		t.Errorf("error %v; %d files are left", err, len(left))
	}
}
