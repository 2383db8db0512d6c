package register

import (
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"
)

// Whatever the rate of the store's clock is within what is promised, and however long a
// reading travels, the estimate is a time that the clock has reached, and it is in doubt by
// no less than it is wrong.
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
