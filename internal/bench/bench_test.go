package bench

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"sema"
	"sema/engine/fileengine"
	"sema/engine/memengine"
	"sema/engine/redisengine"
	"sema/internal/redistest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// short is all scenarios in a second or two.
func short(scenarios ...string) Config {
	return Config{
		Scenarios: scenarios, Rounds: 2, Round: 10 * time.Millisecond, Warmup: time.Millisecond,
		Goroutines: []int{1, 10}, Names: 10, Waiters: []int{3, 20}, Permits: 150, Lease: time.Second,
	}
}

// keep is an engine that this process's other side shares.
type keep struct{ sema.Engine }

func (keep) Close() error { return nil }

func memory(t *testing.T) Target {
	e := memengine.New()
	t.Cleanup(func() { _ = e.Close() })
	return Target{Open: func() (sema.Engine, error) { return keep{e}, nil }}
}

func onRedis(rdb redis.UniversalClient) Target {
	return Target{Open: func() (sema.Engine, error) { return redisengine.New(rdb), nil }, Redis: rdb}
}

// results runs a configuration and looks whether what it found can be.
func results(t *testing.T, target Target, c Config) map[string]Result {
	t.Helper()
	found := map[string]Result{}
	var order []string
	c.Report = func(r Result) error {
		order = append(order, r.Scenario)
		found[r.Scenario] = r
		return nil
	}
	if err := Run(t.Context(), target, c); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(order, c.Scenarios) {
		t.Errorf("ran %v, want %v", order, c.Scenarios)
	}
	for name, r := range found {
		if len(r.Rows) == 0 || r.About == "" || r.Unit == "" {
			t.Errorf("%s: %+v", name, r)
		}
		for _, row := range r.Rows {
			if row.Who == "" || !row.Baseline && row.Count < 1 || row.Rate != nil && row.Rate.Min <= 0 || row.P50 != nil && *row.P50 > *row.P99 {
				t.Errorf("%s: %+v", name, row)
			}
			if row.Baseline && row.Ratio == nil && row.Core == nil {
				t.Errorf("%s: no ratio to %s", name, row.Who)
			}
		}
	}
	return found
}

func TestMemory(t *testing.T) {
	t.Parallel()
	found := results(t, memory(t), short(Scenarios(false)...))
	rows := found["uncontended"].Rows
	if len(rows) != 4 || rows[0].Case != "goroutines=1" || rows[3].Who != aChannel || *rows[0].Allocs <= *rows[1].Allocs {
		t.Errorf("uncontended: %+v", rows)
	}
	if rows := found["contended"].Rows; len(rows) != 6 || rows[0].OfIdeal != nil || rows[2].OfIdeal == nil {
		t.Errorf("contended, by the one number of goroutines above its limit: %+v", rows)
	}
	if rows := found["queue"].Rows; rows[0].Ratio != nil || rows[1].Ratio == nil || rows[0].Script != nil {
		t.Errorf("queue: %+v", rows)
	}
}

func TestRedis(t *testing.T) {
	t.Parallel()
	rdb := redistest.Start(t).Client()
	found := results(t, onRedis(rdb), short(Scenarios(true)...))
	if rows := found["uncontended"].Rows; len(rows) != 5 || rows[4].Who != pipedCalls || rows[4].Ratio == nil {
		t.Errorf("uncontended: %+v", rows)
	}
	if rows := found["queue"].Rows; rows[0].Script.Min <= 0 || rows[1].Ratio == nil {
		t.Errorf("queue: %+v", rows)
	}
	if rows := found["renew"].Rows; *rows[0].Lost != 0 || *rows[0].Calls <= 0 {
		t.Errorf("renew: %+v", rows)
	}
	if rows := found["memory"].Rows; len(rows) != 3 || *rows[2].Permit <= 0 || *rows[2].Waiter <= 0 {
		t.Errorf("memory: %+v", rows)
	}
	if n := rdb.DBSize(t.Context()).Val(); n != 0 {
		t.Errorf("%d keys are left", n)
	}
}

func TestCluster(t *testing.T) {
	t.Parallel()
	c := redistest.StartCluster(t, 3)
	rdb := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{c.Nodes[0].Addr()}})
	t.Cleanup(func() { _ = rdb.Close() })
	results(t, onRedis(rdb), short("hand-off", "many-names", "queue", "memory"))
	for _, node := range c.Nodes {
		if n := node.Client().DBSize(t.Context()).Val(); n != 0 {
			t.Errorf("%d keys are left", n)
		}
	}
}

// Whenever it is interrupted, nothing of it is left, and all else is.
func TestInterruptedRunsLeaveNothing(t *testing.T) {
	t.Parallel()
	rdb := redistest.Start(t).Client()
	others := []string{"sema:{other}:state", "sema-bench-other", "sema:{sema-bench-other}:state"}
	for _, key := range others {
		if err := rdb.Set(t.Context(), key, "x", 0).Err(); err != nil {
			t.Fatal(err)
		}
	}
	moments := map[string]string{"queue": ": 0 of", "renew": ": acquiring", "memory": ": acquiring"}
	for _, name := range Scenarios(true) {
		for _, moment := range []string{"round 2", moments[name]} {
			ctx, cancel := context.WithCancel(t.Context())
			c := short(name)
			c.Waiters, c.Permits = []int{100}, 1000
			told := false
			c.Progress = func(text string) {
				if strings.Contains(text, moment) {
					told = true
					cancel()
				}
			}
			c.Report = func(Result) error { return nil }
			err := Run(ctx, onRedis(rdb), c)
			if told && !errors.Is(err, context.Canceled) {
				t.Errorf("%s, interrupted at %q: %v", name, moment, err)
			}
			cancel()
			left := rdb.Keys(t.Context(), "*").Val()
			if len(left) != len(others) {
				t.Fatalf("%s, interrupted at %q: left %v", name, moment, left)
			}
		}
	}
}

func TestFilesAreRemoved(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	target := Target{Open: func() (sema.Engine, error) { return fileengine.New(dir) }}
	other := filepath.Join(dir, "sem", "sema-bench-other.json")
	if err := os.MkdirAll(filepath.Dir(other), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(other, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	results(t, target, short("uncontended", "queue"))
	if files, _ := filepath.Glob(filepath.Join(dir, "sem", "*")); !slices.Equal(files, []string{other}) {
		t.Errorf("left: %v", files)
	}
}

// A report that cannot be written ends the run.
func TestReportEndsTheRun(t *testing.T) {
	full := errors.New("disk full")
	c := short("uncontended", "contended")
	n := 0
	c.Report = func(Result) error { n++; return full }
	if err := Run(t.Context(), memory(t), c); !errors.Is(err, full) || n != 1 {
		t.Errorf("%v after %d reports", err, n)
	}
}

func TestCheck(t *testing.T) {
	if err := short(Scenarios(false)...).Check(false); err != nil {
		t.Fatal(err)
	}
	for what, change := range map[string]func(*Config){
		"scenario":   func(c *Config) { c.Scenarios = []string{"frob"} },
		"rounds":     func(c *Config) { c.Rounds = 0 },
		"goroutines": func(c *Config) { c.Goroutines = []int{1, -1} },
		"names":      func(c *Config) { c.Names = 100_001 },
		"waiters":    func(c *Config) { c.Waiters = nil },
		"permits":    func(c *Config) { c.Permits = 0 },
		"round":      func(c *Config) { c.Round = 0 },
		"warm-up":    func(c *Config) { c.Warmup = -1 },
		"lease":      func(c *Config) { c.Lease = time.Millisecond },
	} {
		c := short("uncontended")
		change(&c)
		var wrong *sema.ArgumentError
		if err := c.Check(true); !errors.As(err, &wrong) || wrong.What != what {
			t.Errorf("%s: %v", what, err)
		}
		if err := Run(t.Context(), memory(t), c); !errors.As(err, &wrong) {
			t.Errorf("%s was run: %v", what, err)
		}
	}
	if short("memory").Check(false) == nil || short("memory").Check(true) != nil {
		t.Error("the scenario memory is for Redis, and for nobody else")
	}
}

func TestSampleOfINFO(t *testing.T) {
	commands := "# Commandstats\r\ncmdstat_evalsha:calls=10,usec=2500,usec_per_call=250.00,rejected_calls=1\r\n" +
		"cmdstat_eval:calls=1,usec=100,usec_per_call=100.00\r\ncmdstat_publish:calls=7,usec=70,usec_per_call=10.00\r\n"
	want := sample{calls: 11, script: 2600 * time.Microsecond, cpu: 1500 * time.Millisecond}
	for _, cpu := range []string{
		"used_cpu_sys:9.0\r\nused_cpu_user:9.0\r\nused_cpu_sys_main_thread:0.5\r\nused_cpu_user_main_thread:1.0\r\n",
		"used_cpu_sys:0.5\r\nused_cpu_user:1.0\r\n",
	} {
		if got, err := parseSample(cpu, commands); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%+v, %v; want %+v", got, err, want)
		}
	}
	if _, err := parseSample("", commands); err == nil {
		t.Error("a server that does not tell its CPU time passes")
	}
}

func TestPeriodIsSemas(t *testing.T) {
	for lease, want := range map[time.Duration]time.Duration{
		30 * time.Second: 29 * time.Second / 3, time.Second: 300 * time.Millisecond,
	} {
		if got := period(lease); got != want {
			t.Errorf("lease %v: renewed every %v, want %v", lease, got, want)
		}
	}
}

func TestOfIdeal(t *testing.T) {
	h := &holder{hold: time.Millisecond}
	if h.ofIdeal(1000, 0) != nil {
		t.Error("nobody held anything")
	}
	h.slept.Store(int64(20 * time.Millisecond))
	h.times.Store(10)
	// 8 permits, each taken again 4 ms after the last time, at best.
	if got := *h.ofIdeal(1000, 2*time.Millisecond); got != 0.5 {
		t.Errorf("%v of the ideal, want 0.5", got)
	}
}

func TestWordsOfThePartner(t *testing.T) {
	for line, ok := range map[string]bool{"got 17": true, "got x": false, "gotten 17": false, "heard 17": false, "": false} {
		if at, good := timeIn(line, sayGot); good != ok || ok && at != 17 {
			t.Errorf("%q: %d, %v", line, at, good)
		}
	}
}
