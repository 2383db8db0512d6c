package register

import (
	"sync"
	"time"
)

const (
	// rates is by how much the store's clock may be faster or slower than this
	// process's: a part of so many.
	rates = 5000

	// maxDoubt is which part of a lease its holder may lose because the step did not
	// ask for the time.
	maxDoubt = 16

	// clockStep is how long a swap may be on its way. A clock that was set by more is
	// noticed by the range that goes with it.
	clockStep = time.Second
)

// clock is what this process knows of the store's.
type clock struct {
	mu            sync.Mutex
	now           int64     // the store's, read at a moment between the other two; 0: never
	before, after time.Time // by the monotonic clock
}

// note takes in what the store's clock showed between a moment and this one.
func (c *clock) note(now int64, before time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now, c.before, c.after = now, before, time.Now()
}

// forget has the clock read anew: it may have been set.
func (c *clock) forget() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = 0
}

// estimate is a time that the store's clock has reached for certain, and by how much it
// may be later. ok is false if it was never read.
func (c *clock) estimate() (least int64, doubt time.Duration, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	at := time.Now()
	since, most := at.Sub(c.after), at.Sub(c.before)
	since -= since / rates
	most += most/rates + time.Microsecond
	doubt = (most - since + time.Microsecond).Truncate(time.Microsecond)
	return c.now + since.Microseconds(), doubt, c.now > 0
}
