package redisengine

import (
	"errors"
	"runtime"
	"time"
)

const (
	// patience is how long a call that fails is sent again, in the hope that
	// a failover, a restart or a lost connection is soon over.
	patience = 3 * time.Second
	minPause = 10 * time.Millisecond // between two attempts; it doubles
	maxPause = 250 * time.Millisecond

	// maxWait bounds what a caller waits, give or take a sweepEvery.
	maxWait    = 10 * time.Second
	sweepEvery = time.Second

	// minAttempt and maxAttempt bound one attempt on the wire, where the client
	// heeds contexts. Between them it is a third of the lease: a connection
	// that swallows everything must not outlast the permits it carries.
	minAttempt = 250 * time.Millisecond
	maxAttempt = 5 * time.Second

	// quickAttempt bounds an attempt that keeps its caller from heeding its
	// context; after one that took longer there is none for slowFor.
	quickAttempt = 250 * time.Millisecond
	slowFor      = time.Minute
)

// flyer sends what a combiner has gathered, one call at a time.
type flyer struct {
	c    *combiner
	busy bool // guarded by the combiner's lock, as is batch

	gathered []*op // what was pending
	batch    []*op // the same, in order, less what has been answered
	spare    []*op // memory for the combiner's next pending
	firsts   []*op // memory for gather
	words    []any // memory for the words of a call

	// Of the call in flight.
	ops    []*op
	began  time.Time
	pause  time.Duration // before the next attempt
	told   error         // the last error that says what to do about it
	unsure bool          // an attempt failed with unknown outcome
}

// lead sends the operations of its caller, who alone is there, over a place that
// was taken for it. Another goroutine would have to be woken, for which the
// runtime wakes a thread, on a small machine at the server's cost. As the caller
// does not heed its context meanwhile, there is one short attempt; the rest is
// for another goroutine.
func (f *flyer) lead() {
	f.next()
	returned := false
	defer func() {
		if !returned { // a panic in a hook of the client's, which the caller may survive
			f.unsure = true
			f.c.arrive(f, errors.New("the client panicked"))
			go f.fly()
		}
	}()
	over := f.try(quickAttempt, true)
	returned = true
	if !over {
		if time.Since(f.began) >= quickAttempt {
			f.c.mu.Lock()
			f.c.slow = time.Now().Add(slowFor)
			f.c.mu.Unlock()
		}
		go func() {
			f.rest()
			f.send()
			f.fly()
		}()
		return
	}
	if len(f.batch) > 0 || !f.land() {
		go f.fly()
	}
}

// fly sends what is pending until nothing is, or too little for this flyer.
func (f *flyer) fly() {
	for {
		f.sendAll()
		// Those who were told run first: what they do next goes along.
		runtime.Gosched()
		if f.land() {
			return
		}
	}
}

// land makes the flyer idle, unless there is work for it, which it then takes.
func (f *flyer) land() bool {
	c := f.c
	c.mu.Lock()
	defer c.mu.Unlock()
	if f.gathered != nil {
		clear(f.gathered)
		f.spare, f.gathered = f.gathered[:0], nil
	}
	if c.mayFly(c.air - 1) {
		c.gather(f)
		return false
	}
	f.busy = false
	c.air--
	return true
}

// sendAll sends what was gathered, in as many steps as it takes.
func (f *flyer) sendAll() {
	for len(f.batch) > 0 {
		f.next()
		f.send()
	}
}

// next makes the next operations of the batch those in flight.
func (f *flyer) next() {
	f.ops = f.batch[:min(len(f.batch), maxOps)]
	f.began, f.pause, f.told, f.unsure = time.Now(), minPause, nil, false
}

// send has the operations carried out, trying again while there is hope. All of
// them name their permits, so a step whose answer was lost can be sent again.
func (f *flyer) send() {
	for !f.try(maxAttempt, false) {
		f.rest()
	}
}

// rest is the pause after an attempt.
func (f *flyer) rest() {
	time.Sleep(f.pause)
	f.pause = min(2*f.pause, maxPause)
}

// try makes one attempt, over a place that was taken if so, and reports whether
// that was the last.
func (f *flyer) try(most time.Duration, taken bool) bool {
	news, err := f.attempt(most, taken)
	if err == nil {
		if news != "" {
			f.c.news(news)
		}
		f.c.arrive(f, nil)
		return true
	}
	fault := sortError(err)
	f.unsure = f.unsure || !fault.notExecuted
	if fault.hint != "" {
		f.told = err
	}
	if fault.retry && time.Since(f.began)+f.pause <= patience {
		return false
	}
	if f.told != nil {
		err = f.told // says more than how the connection ended the last time
	}
	f.c.arrive(f, err)
	return true
}

// attempt sends the operations as one step, and returns the news beside their
// answers. It takes no longer than most.
func (f *flyer) attempt(most time.Duration, taken bool) (news string, err error) {
	c, now := f.c, time.Now()
	longest := time.Duration(0)
	for _, o := range f.ops {
		longest = max(longest, o.lease)
	}
	c.mu.Lock()
	if longest > 0 {
		c.lease = longest
	}
	if c.lease > 0 {
		most = min(most, max(minAttempt, c.lease/3))
	}
	// The server is told who the client is if a permit or ticket is at stake
	// and it may have forgotten.
	keep := 2*longest + time.Minute
	describe := longest > 0 && now.Sub(c.described) >= keep/3
	c.mu.Unlock()

	var description []any
	words := append(f.words[:0], nil, nil)
	if describe {
		words = append(words, len(c.keys.main)+1)
		description = []any{"D", c.description, keep.Milliseconds()}
	} else {
		words = append(words, len(c.keys.main))
	}
	for i := range c.keys.main {
		words = append(words, &c.keys.main[i])
	}
	if describe {
		words = append(words, c.keys.client(c.client))
	}
	f.words = program(append(words, &c.client), f.ops, description...)
	reply, err := runStep(c.carrier, f.words, most, taken)
	if err != nil {
		return "", err
	}
	if news, err = readReply(reply, f.ops); err == nil && describe {
		c.mu.Lock()
		c.described = now
		c.mu.Unlock()
	}
	return news, err
}
