// Package watchdog notices when the whole process was stopped.
package watchdog

import (
	"sync"
	"time"
)

// Tick is how often a watchdog looks at the clock. It does not notice stalls shorter than
// two ticks.
const Tick = 10 * time.Millisecond

// Watch looks at the clock each Tick until stop is called. After each stall it calls tell
// with the end of the stall and its length. After stop has returned it calls tell no more.
func Watch(tell func(end time.Time, span time.Duration)) (stop func()) {
	done := make(chan struct{})
	var watching sync.WaitGroup
	watching.Go(func() {
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
	})
	return sync.OnceFunc(func() { close(done); watching.Wait() })
}
