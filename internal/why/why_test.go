package why_test

import (
	"testing"

	"sema/engine"
	"sema/internal/why"
)

func TestOf(t *testing.T) {
	queue := func(weights ...int) (list []engine.Waiter) {
		for _, w := range weights {
			list = append(list, engine.Waiter{Weight: w})
		}
		return list
	}
	for _, c := range []struct {
		name           string
		st             engine.State
		weight, before int
		want           why.Why
	}{
		{"free", engine.State{Limit: 3, Used: 1}, 2, 0, why.Why{Cause: why.Nothing, Weight: 2, Free: 2}},
		{"too heavy", engine.State{Limit: 3, Paused: true}, 4, 0, why.Why{Cause: why.TooHeavy, Weight: 4, Free: 3}},
		{"paused", engine.State{Limit: 3, Paused: true, Waiters: queue(1)}, 1, 1, why.Why{Cause: why.Paused, Weight: 1, Before: 1, First: 1, Free: 3}},
		{"heavy head", engine.State{Limit: 3, Used: 1, Waiters: queue(3)}, 1, 1, why.Why{Cause: why.Head, Weight: 1, Before: 1, First: 3, Free: 2}},
		{"behind", engine.State{Limit: 3, Used: 3, Waiters: queue(1, 1)}, 1, 2, why.Why{Cause: why.Behind, Weight: 1, Before: 2, First: 1}},
		{"about to be served", engine.State{Limit: 3, Used: 1, Waiters: queue(1)}, 1, 1, why.Why{Cause: why.Behind, Weight: 1, Before: 1, First: 1, Free: 2}},
		{"lowered", engine.State{Limit: 2, Used: 3}, 1, 0, why.Why{Cause: why.Over, Weight: 1}},
		{"wants more", engine.State{Limit: 3, Used: 2}, 2, 0, why.Why{Cause: why.Needs, Weight: 2, Free: 1}},
		{"full", engine.State{Limit: 3, Used: 3}, 1, 0, why.Why{Cause: why.Full, Weight: 1}},
	} {
		if got := why.Of(c.st, c.weight, c.before); got != c.want {
			t.Errorf("%s: %+v, want %+v", c.name, got, c.want)
		}
	}
}
