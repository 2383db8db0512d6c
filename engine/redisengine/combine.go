package redisengine

import (
	"context"
	"fmt"
	"sync"
	"time"

	"sema"
)

const (
	// maxOps bounds the operations in one script call, and so how long it
	// keeps the server from others: about a millisecond.
	maxOps = 500

	// crowd is how many operations must wait for a second call to be sent
	// while one is in flight. It has the server work while the client does;
	// with fewer, one call with all of them is better.
	crowd = 32
)

// combiner sends the operations of one session as calls of the step script.
// While a call is in flight, further operations gather and leave together in
// the next: a call costs the server little more for a hundred operations than
// for one. Nothing waits when no call is in flight, but for a place where many
// semaphores are busy. Operations that leave together take effect in the order
// they were made, but for first asks: those go behind what leaves with them, so
// that they find what is released together with them. Two calls in flight
// have no order.
type combiner struct {
	carrier     carrier
	name        string
	keys        keys
	client      string
	description string
	news        func(message string) // takes what the reply tells beside the answers

	mu        sync.Mutex
	pending   []*op
	flyers    [2]flyer
	air       int       // how many flyers are not idle
	forsaken  int       // calls in flight that nobody waits for
	slow      time.Time // until when callers do not send themselves
	described time.Time // when the server was last told who the client is
	lease     time.Duration
	sweeper   *time.Timer // runs sweep
	sweeping  bool        // it is armed
	closed    bool
}

// call is some operations of one caller.
type call struct {
	ops     []op
	only    [1]op // backs ops if there is one
	left    int   // how many are not answered; guarded by the combiner's lock
	since   time.Time
	done    chan struct{} // gets one word when none is left
	err     error
	unsure  bool // an attempt failed with unknown outcome: it may have been the one that counted
	flying  int  // how many operations are in flight; guarded by the combiner's lock
	givenUp bool // the caller does not wait any more; guarded by the combiner's lock
}

var calls = sync.Pool{New: func() any { return &call{done: make(chan struct{}, 1)} }}

// one carries out one operation.
func (c *combiner) one(ctx context.Context, what string, o op) (sema.Answer, error) {
	k := calls.Get().(*call)
	k.only[0] = o
	k.ops = k.only[:]
	if err := c.do(ctx, what, k); err != nil {
		return sema.Answer{}, err
	}
	a := k.only[0].answer
	*k = call{done: k.done}
	calls.Put(k)
	return a, nil
}

// all carries out operations, in order though maybe in several steps.
func (c *combiner) all(ctx context.Context, what string, ops []op) ([]sema.Answer, error) {
	if len(ops) == 0 {
		return nil, ctx.Err()
	}
	k := &call{ops: ops, done: make(chan struct{}, 1)}
	if err := c.do(ctx, what, k); err != nil {
		return nil, err
	}
	answers := make([]sema.Answer, len(ops))
	for i := range ops {
		answers[i] = ops[i].answer
	}
	return answers, nil
}

// do waits for the answers of a call. When ctx ends first, its operations may
// still be carried out, and the call is not to be touched any more.
func (c *combiner) do(ctx context.Context, what string, k *call) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	k.left, k.since = len(k.ops), time.Now()
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		return wrap(what, c.name, sema.ErrClosed, true)
	}
	for i := range k.ops {
		k.ops[i].call = k
		c.pending = append(c.pending, &k.ops[i])
	}
	alone := c.air == 0
	f := c.flyer()
	lead := f != nil && alone && len(k.ops) <= maxOps && !k.since.Before(c.slow) && c.carrier.take()
	if lead {
		c.gather(f)
	}
	if !c.sweeping {
		c.sweeping = true
		if c.sweeper == nil {
			c.sweeper = time.AfterFunc(sweepEvery, c.sweep)
		} else {
			c.sweeper.Reset(sweepEvery)
		}
	}
	c.mu.Unlock()
	if lead {
		f.lead()
	} else if f != nil {
		go f.fly()
	}
	select {
	case <-k.done:
		if k.err == nil {
			return nil
		}
		return c.wrap(ctx, what, k.err, !k.unsure)
	case <-ctx.Done():
		c.mu.Lock()
		c.giveUp(k)
		c.mu.Unlock()
		return ctx.Err()
	}
}

// wrap makes the error of an operation, which is ctx's own if that has ended.
func (c *combiner) wrap(ctx context.Context, op string, err error, notExecuted bool) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return wrap(op, c.name, err, notExecuted)
}

// flyer takes an idle flyer into service, if there is work for one. The lock is
// held.
func (c *combiner) flyer() *flyer {
	if !c.mayFly(c.air) {
		return nil
	}
	for i := range c.flyers {
		if f := &c.flyers[i]; !f.busy {
			f.c, f.busy = c, true
			c.air++
			return f
		}
	}
	return nil
}

// mayFly reports whether what is pending may leave beside others in flight. It
// may not if nobody waits for one of those calls any more: among what is
// pending may be a release of what it asks for, which must come after it. The
// lock is held, until what is pending has been gathered.
func (c *combiner) mayFly(others int) bool {
	switch others {
	case 0:
		return len(c.pending) > 0
	case 1:
		return len(c.pending) >= crowd && c.forsaken == 0
	}
	return false
}

// giveUp notes that nobody waits for a call any more. The lock is held.
func (c *combiner) giveUp(k *call) {
	if !k.givenUp && k.flying > 0 {
		c.forsaken++
	}
	k.givenUp = true
}

// gather takes what is pending, in order: first asks behind the others; and
// without first asks and renewals that nobody waits for. The lock is held.
func (c *combiner) gather(f *flyer) {
	gathered := c.pending
	c.pending = f.spare
	batch := gathered[:0]
	for _, o := range gathered {
		first := o.kind == acquireOp && !o.placed
		switch {
		case o.call.givenUp && (first || o.kind == renewOp):
		case first:
			f.firsts = append(f.firsts, o)
		default:
			batch = append(batch, o)
		}
	}
	batch = append(batch, f.firsts...)
	for _, o := range batch {
		if o.call.flying++; o.call.givenUp && o.call.flying == 1 {
			c.forsaken++
		}
	}
	clear(f.firsts)
	f.firsts = f.firsts[:0]
	f.gathered, f.batch = gathered, batch
}

// arrive tells the callers that what f had in flight has been answered, or has
// failed with err.
func (c *combiner) arrive(f *flyer, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f.batch = f.batch[len(f.ops):]
	for _, o := range f.ops {
		// A release that was sent twice and found nothing the second time
		// did its work the first time.
		if f.unsure && o.kind == releaseOp {
			o.answer.Status = found
		}
		if o.call.flying--; o.call.givenUp && o.call.flying == 0 {
			c.forsaken--
		}
		o.call.finish(1, err, f.unsure)
	}
}

// finish notes that n operations are over, and tells the caller when all are.
func (k *call) finish(n int, err error, unsure bool) {
	if k.left == 0 {
		return // it was told already that this takes too long
	}
	if err != nil {
		k.err = err
	}
	k.unsure = k.unsure || unsure
	if k.left -= n; k.left == 0 {
		k.done <- struct{}{}
	}
}

// sweep fails the calls that take too long, while there are calls. A client with
// timeouts hardly lets it come to that.
func (c *combiner) sweep() {
	c.mu.Lock()
	defer c.mu.Unlock()
	now, err := time.Now(), fmt.Errorf("no answer within %v", maxWait)
	fail := func(ops []*op) {
		for _, o := range ops {
			if k := o.call; k.left > 0 && now.Sub(k.since) >= maxWait {
				c.giveUp(k)
				k.finish(k.left, err, true)
			}
		}
	}
	fail(c.pending)
	for i := range c.flyers {
		fail(c.flyers[i].batch)
	}
	if c.sweeping = c.air > 0; c.sweeping {
		c.sweeper.Reset(sweepEvery)
	}
}

// shut fails every further operation.
func (c *combiner) shut() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
}
