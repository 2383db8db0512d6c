package measure

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// sleeper works for a fixed time, on the bubble's clock.
func sleeper(name string, d time.Duration) Contestant {
	return Contestant{Name: name, Do: func(context.Context, int) (time.Duration, error) {
		time.Sleep(d)
		return d, nil
	}}
}

func TestRunMeasuresRatesWaitsAndRatios(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var order []string
		plan := Plan{Workers: 4, Warmup: time.Second, Round: 10 * time.Second, Rounds: 3}
		series, err := Run(t.Context(), plan, []Contestant{sleeper("quick", time.Millisecond), sleeper("slow", 4*time.Millisecond)},
			func(_ int, name string) { order = append(order, name) })
		if err != nil {
			t.Fatal(err)
		}
		if got := strings.Join(order, " "); got != "quick slow slow quick quick slow" {
			t.Errorf("order of turns: %s", got)
		}
		if r := Ratio(series[0], series[1]).Median; r < 3.9 || r > 4.1 {
			t.Errorf("ratio %v, want 4", r)
		}
		if r := series[1].Rate(); r.Median < 990 || r.Max > 1010 || r.Min > r.Median {
			t.Errorf("rate %+v, want 1000", r)
		}
		if p := time.Duration(series[1].Waits().ValueAtQuantile(99)); p < 3900*time.Microsecond || p > 4100*time.Microsecond {
			t.Errorf("p99 %v, want 4ms", p)
		}
	})
}

func TestRunStopsAtTheFirstError(t *testing.T) {
	broken := errors.New("broken")
	var calls atomic.Int64
	_, err := Run(t.Context(), Plan{Workers: 3, Round: time.Hour, Rounds: 1}, []Contestant{{Name: "x", Do: func(context.Context, int) (time.Duration, error) {
		if calls.Add(1) == 10 {
			return 0, broken
		}
		return 0, nil
	}}}, nil)
	if !errors.Is(err, broken) || !strings.Contains(err.Error(), "x") {
		t.Errorf("error %v, want the contestant's, with its name", err)
	}
}

// One worker fails while the other waits for what only the first could give.
func TestAnErrorEndsTheOthersWaits(t *testing.T) {
	broken := errors.New("broken")
	_, err := Run(t.Context(), Plan{Workers: 2, Round: time.Hour, Rounds: 1}, []Contestant{{Name: "x", Do: func(ctx context.Context, worker int) (time.Duration, error) {
		if worker == 0 {
			return 0, broken
		}
		<-ctx.Done()
		return 0, ctx.Err()
	}}}, nil)
	if !errors.Is(err, broken) {
		t.Errorf("error %v, want the first", err)
	}
}

var sink any

func TestUnitsAndMallocs(t *testing.T) {
	series, err := Run(t.Context(), Plan{Workers: 1, Round: 20 * time.Millisecond, Rounds: 2}, []Contestant{{Name: "x", Units: 10, Do: func(context.Context, int) (time.Duration, error) {
		for range 20 {
			sink = new([64]byte)
		}
		return 0, nil
	}}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if n := series[0].Done(); n == 0 || n%10 != 0 {
		t.Errorf("%d units done", n)
	}
	if m := series[0].Mallocs().Min; m < 1.99 {
		t.Errorf("%v heap objects for each unit, want 2 or a little more", m)
	}
}

func TestRunRefusesAnEmptyPlan(t *testing.T) {
	for _, plan := range []Plan{{}, {Workers: 1, Rounds: 1}, {Workers: 1, Round: time.Second}, {Rounds: 1, Round: time.Second}} {
		if _, err := Run(t.Context(), plan, nil, nil); err == nil {
			t.Errorf("plan %+v was run", plan)
		}
	}
}

func TestSpread(t *testing.T) {
	for _, c := range []struct {
		figures []float64
		want    Spread
	}{{nil, Spread{}}, {[]float64{3}, Spread{3, 3, 3}}, {[]float64{5, 1, 2}, Spread{2, 1, 5}}, {[]float64{4, 1, 2, 10}, Spread{3, 1, 10}}} {
		if got := Of(c.figures...); got != c.want {
			t.Errorf("Of(%v) = %v, want %v", c.figures, got, c.want)
		}
	}
}
