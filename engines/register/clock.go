package register

import (
	"sync"
	"time"
)

const (
	// maxDrift bounds the rate of the store's clock against this process's clock:
	// they differ by at most 1/maxDrift.
	maxDrift = 5000

	// maxDoubt bounds the part of a lease that its holder loses because the step
	// only estimated the time: 1/maxDoubt.
	maxDoubt = 16

	// clockStep is how long a swap may travel. The time range of a swap notices a
	// clock that was set by more than that.
	clockStep = time.Second
)

// clock estimates the store's clock.
type clock struct {
	mu            sync.Mutex
	now           int64     // a reading of the store's clock, taken between before and after; 0: none
	before, after time.Time // by the monotonic clock
}

// note records a reading of the store's clock that was taken between before and now.
func (c *clock) note(now int64, before time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now, c.before, c.after = now, before, time.Now()
}

// forget drops the last reading, because the store's clock may have been set.
func (c *clock) forget() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = 0
}

// estimate returns a time that the store's clock has certainly reached, and how much
// later it may be by now. ok is false if there is no reading.
func (c *clock) estimate() (least int64, doubt time.Duration, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	at := time.Now()
	since, most := at.Sub(c.after), at.Sub(c.before)
	since -= since / maxDrift
	most += most/maxDrift + time.Microsecond
	doubt = (most - since + time.Microsecond).Truncate(time.Microsecond)
	return c.now + since.Microseconds(), doubt, c.now > 0
}
