package register

import (
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"
)

// The clock has always reached the estimate, and its error is at most the doubt. This
// holds for every rate that a store may have and for every travel time of a reading.
func TestEstimate(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		rate := rapid.Int64Range(-200, 200).Draw(r, "parts per million")
		out := rapid.Int64Range(0, 1e6).Draw(r, "way there, µs")
		back := rapid.Int64Range(0, 1e6).Draw(r, "way back, µs")
		pause := rapid.Int64Range(0, 1e9).Draw(r, "pause, µs")
		var least, is int64
		var doubt time.Duration
		synctest.Test(t, func(*testing.T) {
			start := time.Now()
			store := func() int64 {
				passed := time.Since(start).Microseconds()
				return 1e15 + passed + passed*rate/1e6
			}
			c := clock{}
			before := time.Now()
			time.Sleep(time.Duration(out) * time.Microsecond)
			now := store()
			time.Sleep(time.Duration(back) * time.Microsecond)
			c.note(now, before)
			time.Sleep(time.Duration(pause) * time.Microsecond)
			least, doubt, _ = c.estimate()
			is = store()
		})
		if is < least-1 || is > least+doubt.Microseconds()+1 { // the model rounds as well
			r.Errorf("the clock shows %d: %d after the estimate, which is in doubt by %v", is, is-least, doubt)
		}
	})
}
