package report

import (
	"strings"
	"testing"
	"time"

	"sema/bench/internal/results"
	"sema/internal/measure"
)

// did is a contestant with a round for each rate.
func did(name string, held int64, rates ...int64) results.Contestant {
	c := results.Contestant{Name: name}
	for _, rate := range rates {
		c.Rounds = append(c.Rounds, results.Round{Done: rate, ElapsedNS: int64(time.Second), MaxHeld: held, P99NS: 1e9 / rate, LongestNS: 2e9 / rate})
	}
	return c
}

func TestVerdict(t *testing.T) {
	broken := did("classic-fair", 1, 900)
	broken.Failed = "broken"
	for _, c := range []struct {
		want   string
		others []results.Contestant
	}{
		{"**`classic-basic` wins:** 2.00 (2.00–2.00) times", []results.Contestant{did("classic-basic", 8, 200, 220, 240)}},
		{"**`sema` wins;** next is `classic-basic`, which did 0.500 (0.500–0.500)", []results.Contestant{did("classic-basic", 8, 50, 55, 60)}},
		{"No clear winner: `classic-basic` did 1.10 (0.909–1.20)", []results.Contestant{did("classic-basic", 8, 120, 100, 132)}},
		{"No clear winner: `classic-basic` did 0.900 (0.500–1.10)", []results.Contestant{did("classic-basic", 8, 90, 55, 132)}},
		{"**`sema` wins;** next is `classic-locked`", []results.Contestant{did("classic-basic", 9, 999), did("noop-pool", 0, 999), broken, did("classic-locked", 8, 1)}},
		{"Only `sema` did it", []results.Contestant{broken}},
	} {
		s := results.Scenario{Name: "x", Limit: 8, Contestants: append([]results.Contestant{did("sema", 8, 100, 110, 120)}, c.others...)}
		if got := verdict(s); !strings.HasPrefix(got, c.want) {
			t.Errorf("verdict %q, want %q", got, c.want)
		}
	}
}

func TestTableSaysWhatIsWrong(t *testing.T) {
	broken, late := results.Contestant{Name: "classic-fair", Failed: "a|b"}, did("classic-locked", 8, 5)
	late.Rounds[0].Unserved = 3
	s := results.Scenario{Name: "64-of-8", Limit: 8, Contestants: []results.Contestant{did("sema", 8, 100), did("classic-basic", 9, 999), broken, late}}
	got := table(s)
	for _, want := range []string{"| `sema` | **100 (100–100)** | 1 |", "| 9 | over the limit |", "| failed: a/b |", "3 callers not served in time"} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q in\n%s", want, got)
		}
	}
}

func TestRenderRefusesUnknownContestants(t *testing.T) {
	run := results.Run{Scenarios: []results.Scenario{{Name: "64-of-8", Limit: 8, Contestants: []results.Contestant{did("nobody", 1, 1)}}}}
	if _, err := Render(run); err == nil || !strings.Contains(err.Error(), "nobody") {
		t.Errorf("rendered: %v", err)
	}
}

// TestRenderNothing wants a page of a run that has nothing to show.
func TestRenderNothing(t *testing.T) {
	files, err := Render(results.Run{})
	if err != nil || !strings.Contains(string(files["bench.md"]), "Not part of this run.") {
		t.Errorf("%v, %s", err, files["bench.md"])
	}
}

func TestFigures(t *testing.T) {
	for in, want := range map[float64]string{0: "0", 4.356: "4.36", 89.8: "89.8", 123.4: "123", 52692: "52,700", 16866993: "16,900,000", 999.9: "1,000"} {
		if got := count(in); got != want {
			t.Errorf("count(%v) = %s, want %s", in, got, want)
		}
	}
	for in, want := range map[float64]string{0: "–", 59: "59 ns", 1500: "1.5 µs", 142e3: "142 µs", 2.2e6: "2.2 ms", 1.3e9: "1.3 s"} {
		if got := duration(in); got != want {
			t.Errorf("duration(%v) = %s, want %s", in, got, want)
		}
	}
	if got := times(measure.Spread{Median: 1, Min: 0.5, Max: 57.5}); got != "1.00 (0.500–57.5)" {
		t.Errorf("times: %s", got)
	}
}
