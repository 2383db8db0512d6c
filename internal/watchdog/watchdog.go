// Package watchdog notices when the whole process was stopped.
package watchdog

import "time"

// Tick is how often a watchdog looks at the clock. It does not notice stalls shorter than
// two ticks.
const Tick = 10 * time.Millisecond

// Watch looks at the clock each Tick until done is closed. After each stall it calls tell
// with the end of the stall and its length.
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
