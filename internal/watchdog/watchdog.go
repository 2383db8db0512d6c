// Package watchdog notes when the whole process stood still.
package watchdog

import "time"

// Tick is how often a watchdog looks at the clock. What is shorter than two ticks
// goes unseen.
const Tick = 10 * time.Millisecond

// Watch looks at the clock each Tick until done is closed, and tells of each stall
// when it is over: the moment it ended, and how much longer than a Tick passed.
func Watch(done <-chan struct{}, tell func(end time.Time, span time.Duration)) {
	ticker := time.NewTicker(Tick)
	defer ticker.Stop()
	for before, ended := time.Now(), false; !ended; {
		select {
		case <-done:
			ended = true // a stall may have ended right before
		case <-ticker.C:
		}
		now := time.Now()
		if late := now.Sub(before) - Tick; late > Tick {
			tell(now, late)
		}
		before = now
	}
}
