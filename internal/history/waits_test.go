package history_test

import (
	"testing"
	"time"

	"sema/internal/history"
)

// A quantile lies between the bounds of a class. The last class has no upper bound.
func TestBoundsOfWaits(t *testing.T) {
	for _, c := range []struct {
		waits    history.Waits
		q        float64
		from, to time.Duration
	}{
		{history.Waits{}, .5, 0, 0},
		{history.Waits{0: 1}, .5, 0, time.Second},
		{history.Waits{0: 9, 4: 1}, .5, 0, time.Second},
		{history.Waits{0: 9, 4: 1}, .95, 8 * time.Second, 16 * time.Second},
		{history.Waits{1: 1}, 0, time.Second, 2 * time.Second},
		{history.Waits{10: 1, 11: 1}, .5, 512 * time.Second, 1024 * time.Second},
		{history.Waits{10: 1, 11: 1}, .51, 1024 * time.Second, history.NoBound},
	} {
		from, to := c.waits.Bounds(c.q)
		if from != c.from || to != c.to {
			t.Errorf("%v of %v: %v to %v", c.q, c.waits, from, to)
		}
	}
}
