package cli_test

import (
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"sema/internal/fixture/expect"
	"sema/internal/fixture/redistest"
	"sema/internal/fixture/stall"
)

// benchDoc is what scripts may rely on.
type benchDoc struct {
	Version, Go, OS, Arch, Engine string
	CPUs, Rounds                  int
	RedisVersion                  string  `json:"redis_version"`
	RoundSeconds                  float64 `json:"round_seconds"`
	Results                       []struct {
		Scenario, About string
		Rows            []struct {
			Case, Who string
			Baseline  bool
			Figures   map[string]struct{ Median, Min, Max float64 }
		}
	}
}

// benchKeys are figures that each scenario must have, of sema or a baseline;
// those after the bar are a server's.
var benchKeys = map[string]string{
	"alone":       "p10_ns p50_ns p90_ns ratio | script_p50_ns script_mean_ns",
	"uncontended": "rate ratio client_cpu_ns allocs | script_ns",
	"contended":   "rate ratio p50_ns p99_ns p99_over_p50 of_possible |",
	"hand-off":    "p50_ns p99_ns ratio ratio_of_p99s |",
	"cohort":      "rate ratio p50_ns p99_ns longest_ns |",
	"newcomer":    "| p50_ns p99_ns", // it takes two processes
	"many-names":  "rate ratio |",
	"queue":       "p50_ns p99_ns ratio client_cpu_ns | script_ns bytes_waiter",
	"renew":       "| calls bytes_permit",
}

// benchShort runs all scenarios, which takes a few seconds.
func benchShort(t testing.TB, url, engine string) {
	t.Helper()
	cmd := exec.Command("sema", "bench", "--json", "--rounds", "2", "--round", "20ms", "--warmup", "1ms",
		"--goroutines", "1,9", "--names", "10", "--waiters", "3,10", "--permits", "20", "--lease", "6s")
	cmd.Env = append(os.Environ(), "SEMA_URL="+url)
	var complaint strings.Builder
	cmd.Stderr = &complaint
	out, err := cmd.Output()
	if err != nil || complaint.Len() > 0 {
		t.Fatalf("%v: %s", err, complaint.String())
	}
	var doc benchDoc
	if err := json.Unmarshal(out, &doc); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	server := engine == "redis"
	if doc.Version == "" || doc.Go == "" || doc.OS == "" || doc.Arch == "" || doc.CPUs < 1 || doc.Rounds != 2 || doc.RoundSeconds != 0.02 ||
		doc.Engine != engine || (doc.RedisVersion != "") != server || len(doc.Results) != len(benchKeys) {
		t.Errorf("head: %+v", doc)
	}
	for _, r := range doc.Results {
		keys, more, _ := strings.Cut(benchKeys[r.Scenario], "|")
		if server {
			keys += more
		}
		seen := map[string]bool{}
		for _, row := range r.Rows {
			for key, f := range row.Figures {
				seen[key] = true
				if f.Min > f.Median || f.Median > f.Max || f.Min < 0 {
					t.Errorf("%s: %s: %s %+v", r.Scenario, row.Who, key, f)
				}
			}
		}
		for key := range strings.FieldsSeq(keys) {
			if !seen[key] {
				t.Errorf("%s says nothing of %s: %+v", r.Scenario, key, r.Rows)
			}
		}
	}
}

// A release has a sixth of a lease to be answered; on a machine that stands still
// for so long, sema bench fails.
func TestBench(t *testing.T) {
	ofProcesses(t)
	t.Parallel()
	for engine, bench := range map[string]func(t testing.TB){
		"memory": func(t testing.TB) { benchShort(t, "memory:", "memory") },
		"file": func(t testing.TB) {
			dir := t.TempDir()
			benchShort(t, "file://"+filepath.ToSlash(dir), "file")
			left, err := os.ReadDir(dir)
			expect.OK(t, err)
			for _, f := range left {
				if f.Name() != "swept" { // when the engine last looked after the directory
					t.Errorf("left: %s", f.Name())
				}
			}
		},
		"redis": func(t testing.TB) {
			s := redistest.Start(t)
			benchShort(t, s.URL(), "redis")
			if n := s.Client().DBSize(context.Background()).Val(); n != 0 {
				t.Errorf("%d keys are left", n)
			}
		},
	} {
		t.Run(engine, func(t *testing.T) {
			t.Parallel()
			stall.Run(t, func(t *stall.Case) { bench(t) })
		})
	}
}

func TestBenchOnOtherKindsOfRedis(t *testing.T) {
	ofProcesses(t)
	t.Parallel()
	stall.Run(t, func(t *stall.Case) { // Sentinels lose patience with a master that stands still
		sentinel, cluster := redistest.StartSentinel(t), redistest.StartCluster(t, 3)
		secret := redistest.Start(t)
		expect.OK(t, secret.Client().ConfigSet(context.Background(), "requirepass", "hush-me").Err())
		for _, c := range []struct{ url, scenarios, says string }{
			{sentinel.URL(), "hand-off", "engine sentinel "},
			{cluster.URL(), "uncontended,hand-off,queue", "PUBLISH to receive"},
			{"redis://:hush-me@" + secret.Addr(), "uncontended,hand-off,queue", "engine redis "},
		} {
			// A password goes to the other processes as well, but not by their command lines.
			code, output := run(t, "SEMA_URL=", "--url", c.url, "bench", "--progress", "--scenario", c.scenarios,
				"--goroutines", "2", "--waiters", "3", "--rounds", "1", "--round", "20ms")
			if code != 0 || !strings.Contains(output, c.says) || strings.Contains(output, "hush") {
				t.Errorf("exit code %d: %s", code, output)
			}
		}
		for _, node := range cluster.Nodes {
			if n := node.Client().DBSize(context.Background()).Val(); n != 0 {
				t.Errorf("%d keys are left", n)
			}
		}
	})
}
