package cli_test

import (
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"sema/internal/redistest"
)

// benchDoc is what scripts may rely on.
type benchDoc struct {
	Version, Go, OS, Arch, Engine string
	CPUs                          int
	RedisVersion                  string  `json:"redis_version"`
	RoundSeconds                  float64 `json:"round_seconds"`
	Rounds                        int
	Results                       []struct {
		Scenario, About, Unit string
		Rows                  []struct {
			Case, Who string
			Baseline  bool
			Count     int64
			Rate      *struct{ Median, Min, Max float64 }
			P50       float64 `json:"p50_seconds"`
			P99       float64 `json:"p99_seconds"`
			Ratio     *struct{ Median, Min, Max float64 }
		}
	}
}

// short makes a run of all scenarios last a few seconds.
var short = []string{"bench", "--json", "--rounds", "2", "--round", "10ms", "--warmup", "1ms",
	"--goroutines", "1,9", "--names", "10", "--waiters", "3,10", "--permits", "20", "--lease", "1s"}

func benchJSON(t *testing.T, url string) (doc benchDoc) {
	t.Helper()
	cmd := exec.Command("sema", short...)
	cmd.Env = append(os.Environ(), "SEMA_URL="+url)
	var complaint strings.Builder
	cmd.Stderr = &complaint
	out, err := cmd.Output()
	if err != nil || complaint.Len() > 0 {
		t.Fatalf("%v: %s", err, complaint.String())
	}
	if err := json.Unmarshal(out, &doc); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return doc
}

func checkBench(t *testing.T, doc benchDoc, engine string, scenarios int) {
	t.Helper()
	if doc.Version == "" || doc.Go == "" || doc.OS == "" || doc.Arch == "" || doc.CPUs < 1 || doc.Rounds != 2 || doc.RoundSeconds != 0.01 || doc.Engine != engine {
		t.Errorf("head: %+v", doc)
	}
	if (doc.RedisVersion != "") != (engine == "redis") {
		t.Errorf("redis_version %q", doc.RedisVersion)
	}
	if len(doc.Results) != scenarios {
		t.Errorf("%d scenarios, want %d", len(doc.Results), scenarios)
	}
	for _, r := range doc.Results {
		ratios := 0
		for _, row := range r.Rows {
			if row.Ratio != nil {
				ratios++
				if row.Ratio.Median <= 0 || row.Ratio.Min > row.Ratio.Median || row.Ratio.Max < row.Ratio.Median {
					t.Errorf("%s: %+v", r.Scenario, row)
				}
			}
			if row.Count < 1 && !row.Baseline || row.Rate != nil && row.Rate.Median <= 0 || row.P50 > row.P99 {
				t.Errorf("%s: %+v", r.Scenario, row)
			}
		}
		// A process that idles may use no CPU time that could be seen.
		if ratios == 0 && r.Scenario != "memory" && r.Scenario != "renew" {
			t.Errorf("%s has no ratio", r.Scenario)
		}
	}
}

func TestBench(t *testing.T) {
	t.Parallel()
	t.Run("memory", func(t *testing.T) {
		t.Parallel()
		checkBench(t, benchJSON(t, "memory:"), "memory", 6)
	})
	t.Run("file", func(t *testing.T) {
		t.Parallel()
		dir := t.TempDir()
		checkBench(t, benchJSON(t, "file://"+filepath.ToSlash(dir)), "file", 6)
		for _, sub := range []string{"sem", "proc", "inbox"} {
			if left, err := os.ReadDir(filepath.Join(dir, sub)); err != nil || len(left) > 0 {
				t.Errorf("%s: left %v, %v", sub, left, err)
			}
		}
	})
	t.Run("redis", func(t *testing.T) {
		t.Parallel()
		s := redistest.Start(t)
		checkBench(t, benchJSON(t, s.URL()), "redis", 7)
		if n := s.Client().DBSize(context.Background()).Val(); n != 0 {
			t.Errorf("%d keys are left", n)
		}
	})
}

func TestBenchBehindSentinel(t *testing.T) {
	t.Parallel()
	s := redistest.StartSentinel(t)
	code, output := run(t, "SEMA_URL="+s.URL(), "bench", "--scenario", "hand-off,queue", "--waiters", "3", "--rounds", "1", "--round", "10ms")
	if code != 0 || !strings.Contains(output, "engine sentinel ") {
		t.Errorf("exit code %d: %s", code, output)
	}
}

func TestBenchOnCluster(t *testing.T) {
	t.Parallel()
	c := redistest.StartCluster(t, 3)
	code, output := run(t, "SEMA_URL="+c.URL(), "bench", "--scenario", "uncontended,hand-off", "--goroutines", "2", "--rounds", "1", "--round", "10ms")
	if code != 0 || !strings.Contains(output, "PUBLISH to receive") {
		t.Errorf("exit code %d: %s", code, output)
	}
}

// The other process has the password too, but not on its command line.
func TestBenchKeepsThePassword(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	if err := s.Client().ConfigSet(context.Background(), "requirepass", "hush-me").Err(); err != nil {
		t.Fatal(err)
	}
	url := "redis://:hush-me@" + s.Addr()
	args := []string{"--url", url, "bench", "--progress", "--scenario", "hand-off", "--rounds", "1", "--round", "10ms"}
	if code, output := run(t, "SEMA_URL=", args...); code != 0 || strings.Contains(output, "hush") {
		t.Errorf("exit code %d: %s", code, output)
	}
}
