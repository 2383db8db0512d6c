package cli

import (
	"strings"
	"testing"

	"sema/internal/bench"
	"sema/internal/measure"
)

func TestDigits(t *testing.T) {
	for f, want := range map[float64]string{
		0: "0", 1: "1.00", 0.5: "0.500", 99.96: "100.0", 123: "123", 123.6: "124", 1234: "1,234", 1234567.8: "1,234,568", 0.0123456: "0.0123", 0.0000001: "0.000000",
	} {
		if got := digits(f); got != want {
			t.Errorf("%v: %q, want %q", f, got, want)
		}
	}
}

func TestSpan(t *testing.T) {
	for f, want := range map[float64]string{0: "0s", 127e-9: "127ns", 1.2345e-6: "1.23µs", 0.0123456: "12.3ms", 1.2345: "1.23s"} {
		if got := span(&f); got != want {
			t.Errorf("%v: %q, want %q", f, got, want)
		}
	}
}

func TestBenchTable(t *testing.T) {
	p50, rate, ratio := 0.002, measure.Of(1000, 2000, 3000), measure.Of(0.5)
	got := benchTable(bench.Result{
		Scenario: "x", About: "what it is", Unit: "pairs", Ratio: "of rates",
		Rows: []bench.Row{{Case: "n=1", Who: "sema", Rate: &rate, P50: &p50}, {Case: "n=1", Who: "channel", Ratio: &ratio}},
	})
	want := `
x: what it is
ratio: of rates
CASE  WHO      PAIRS/S              P50  RATIO
n=1   sema     2,000 (1,000–3,000)  2ms
n=1   channel                            0.500
`
	if got != want {
		t.Errorf("got %s\nwant %s", strings.ReplaceAll(got, " ", "·"), strings.ReplaceAll(want, " ", "·"))
	}
}

func TestFold(t *testing.T) {
	long := strings.Repeat("word ", 50)
	got := fold("a text: " + long)
	for line := range strings.Lines(got) {
		if len(line) > 111 || strings.HasSuffix(line, " \n") || strings.HasPrefix(line, " ") {
			t.Errorf("%q", line)
		}
	}
	if strings.Join(strings.Fields(got), " ") != "a text: "+strings.TrimSpace(long) {
		t.Errorf("%q", got)
	}
}
