package redisengine

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"sema"
)

const (
	// maxOps bounds the operations in one script call, and so how long it
	// keeps the server from others: about a millisecond.
	maxOps = 500

	// patience is how long a call that fails is sent again, in the hope that
	// a failover, a restart or a lost connection is soon over.
	patience = 3 * time.Second
	minPause = 10 * time.Millisecond // between two attempts; it doubles
	maxPause = 200 * time.Millisecond

	// maxWait bounds what a caller waits for any call.
	maxWait = 10 * time.Second

	// minAttempt and maxAttempt bound one attempt on the wire, where the client
	// heeds contexts. Between them it is a third of the lease: a connection
	// that swallows everything must not outlast the permits it carries.
	minAttempt = 250 * time.Millisecond
	maxAttempt = 5 * time.Second

	// quickAttempt bounds an attempt that keeps its caller from heeding its
	// context; after one that took longer there is none for slowFor.
	quickAttempt = 100 * time.Millisecond
	slowFor      = time.Minute
)

// combiner sends the operations of one session as calls of the step script.
// While a call is in flight, further operations gather and leave together in
// the next: a call costs the server little more for a hundred operations than
// for one. Nothing waits when no call is in flight. One call at a time also
// means that operations take effect in the order they were made, but for first
// asks: those go behind what left with them, so that they find what is
// released together with them.
type combiner struct {
	rdb         redis.UniversalClient
	name        string
	keys        keys
	client      string
	description string
	news        func(message string) // takes what the reply tells beside the answers

	mu      sync.Mutex
	pending []*op
	flight  []*op       // those that left and are not answered yet
	flying  bool        // a goroutine is sending
	late    *time.Timer // fails what is in flight for too long
	closed  bool

	// Of the goroutine that sends: whoever set flying.
	leads     bool      // callers may send themselves
	slow      time.Time // but not before
	spare     []*op     // the other buffer of pending
	firsts    []*op     // for inOrder
	trip      trip
	words     []any     // of the call, to be used again
	described time.Time // when the server was last told who the client is
	lease     time.Duration
}

// call is some operations of one caller.
type call struct {
	ops     []op
	only    [1]op         // backs ops if there is one
	left    int           // how many are not answered; guarded by the combiner's lock
	done    chan struct{} // gets one word when none is left
	err     error
	unsure  bool // an attempt failed with unknown outcome: it may have been the one that counted
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
	k.left = len(k.ops)
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		return wrap(what, c.name, sema.ErrClosed, true)
	}
	for i := range k.ops {
		k.ops[i].call = k
		c.pending = append(c.pending, &k.ops[i])
	}
	idle := !c.flying
	c.flying = true
	c.mu.Unlock()
	switch {
	case !idle:
	case c.leads && len(k.ops) <= maxOps:
		c.lead()
	default:
		go c.fly()
	}
	select {
	case <-k.done:
		if k.err == nil {
			return nil
		}
		return c.wrap(ctx, what, k.err, !k.unsure)
	case <-ctx.Done():
		c.mu.Lock()
		k.givenUp = true
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

// lead sends the operations of its caller, who alone is there. Another goroutine
// would have to be woken, for which the runtime wakes a thread, on a small
// machine at the server's cost. For the caller does not heed its context
// meanwhile, there is one short attempt; the rest is fly's.
func (c *combiner) lead() {
	began := time.Now()
	if began.Before(c.slow) {
		go c.fly()
		return
	}
	gathered, batch := c.gather()
	first := batch[:min(len(batch), maxOps)] // others may have been quick
	c.trip = trip{ops: first, began: began, pause: minPause}
	if !c.try(quickAttempt) {
		c.slow = began.Add(slowFor)
		go func() {
			time.Sleep(c.trip.pause)
			c.send()
			c.sendAll(batch[len(first):])
			c.gathered(gathered)
			c.fly()
		}()
		return
	}
	c.sendAll(batch[len(first):])
	c.gathered(gathered)
	c.mu.Lock()
	more := len(c.pending) > 0
	c.flying = more
	c.mu.Unlock()
	if more {
		go c.fly()
	}
}

// fly sends what is pending until nothing is.
func (c *combiner) fly() {
	for {
		// Those who were told run first: what they do next goes along.
		runtime.Gosched()
		c.mu.Lock()
		if len(c.pending) == 0 {
			c.flying = false
			if c.late != nil {
				c.late.Stop()
			}
			c.mu.Unlock()
			return
		}
		c.mu.Unlock()
		gathered, batch := c.gather()
		c.sendAll(batch)
		c.gathered(gathered)
	}
}

// sendAll sends operations in as many steps as it takes.
func (c *combiner) sendAll(ops []*op) {
	for len(ops) > 0 {
		n := min(len(ops), maxOps)
		c.trip = trip{ops: ops[:n], began: time.Now(), pause: minPause}
		c.send()
		ops = ops[n:]
	}
}

// gather takes what is pending, for gathered to give back the memory, and puts
// it in order: first asks behind the others, and without those that nobody
// waits for.
func (c *combiner) gather() (gathered, batch []*op) {
	c.mu.Lock()
	defer c.mu.Unlock()
	gathered = c.pending
	c.pending = c.spare
	batch = gathered[:0]
	for _, o := range gathered {
		switch {
		case o.kind != acquireOp || o.placed:
			batch = append(batch, o)
		case !o.call.givenUp:
			c.firsts = append(c.firsts, o)
		}
	}
	batch = append(batch, c.firsts...)
	clear(c.firsts)
	c.firsts = c.firsts[:0]
	return gathered, batch
}

func (c *combiner) gathered(ops []*op) {
	clear(ops)
	c.spare = ops[:0]
}

// trip is some operations on their way as one step.
type trip struct {
	ops    []*op
	began  time.Time
	pause  time.Duration // before the next attempt
	told   error         // the last error that says what to do about it
	unsure bool          // an attempt failed with unknown outcome
}

// send completes the trip, trying again while there is hope. All operations
// name their permits, so a step whose answer was lost can be sent again.
func (c *combiner) send() {
	c.depart(c.trip.ops)
	for !c.try(maxAttempt) {
		time.Sleep(c.trip.pause)
		c.trip.pause = min(2*c.trip.pause, maxPause)
	}
}

// try makes one attempt and reports whether that was the last.
func (c *combiner) try(most time.Duration) bool {
	t := &c.trip
	news, err := c.attempt(t.ops, most)
	if err == nil {
		if news != "" {
			c.news(news)
		}
		c.arrive(t.ops, nil, t.unsure)
		return true
	}
	f := sortError(err)
	t.unsure = t.unsure || !f.notExecuted
	if f.hint != "" {
		t.told = err
	}
	if f.retry && time.Since(t.began)+t.pause <= patience {
		return false
	}
	if t.told != nil {
		err = t.told // says more than how the connection ended the last time
	}
	c.arrive(t.ops, err, t.unsure)
	return true
}

// depart notes what is in flight, and has it watched.
func (c *combiner) depart(ops []*op) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.flight = ops
	if c.late == nil {
		c.late = time.AfterFunc(maxWait, c.overdue)
	} else {
		c.late.Reset(maxWait)
	}
}

// arrive tells the callers that their operations have been answered, or failed
// with err.
func (c *combiner) arrive(ops []*op, err error, unsure bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.flight = nil
	for _, o := range ops {
		// A release that was sent twice and found nothing the second time
		// did its work the first time.
		if unsure && o.kind == releaseOp {
			o.answer.Status = found
		}
		o.call.finish(1, err, unsure)
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

// overdue fails what waits for a call that does not end. A client with timeouts
// does not let it come to that.
func (c *combiner) overdue() {
	c.mu.Lock()
	defer c.mu.Unlock()
	err := fmt.Errorf("no answer within %v", maxWait)
	for _, ops := range [][]*op{c.flight, c.pending} {
		for _, o := range ops {
			o.call.givenUp = true
			o.call.finish(o.call.left, err, true)
		}
	}
	if c.flying {
		c.late.Reset(maxWait)
	}
}

// until is a context with a deadline but without a timer: go-redis asks for
// the deadline alone.
type until struct {
	context.Context
	deadline time.Time
}

func (u until) Deadline() (time.Time, bool) { return u.deadline, true }

// attempt sends operations as one step, and returns the news beside their
// answers. It takes no longer than most.
func (c *combiner) attempt(ops []*op, most time.Duration) (news string, err error) {
	now := time.Now()
	wait, longest := most, time.Duration(0)
	for _, o := range ops {
		if o.lease > 0 {
			c.lease, longest = o.lease, max(longest, o.lease)
		}
	}
	if c.lease > 0 {
		wait = min(most, max(minAttempt, c.lease/3))
	}
	// The server is told who the client is if a permit or ticket is at stake
	// and it may have forgotten.
	var description []any
	keep := 2*longest + time.Minute
	describe := longest > 0 && now.Sub(c.described) >= keep/3
	words := append(c.words[:0], nil, nil)
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
	words = program(append(words, &c.client), ops, description...)
	c.words = words
	reply, err := runStep(until{context.Background(), now.Add(wait)}, c.rdb, words)
	if err != nil {
		return "", err
	}
	if news, err = readReply(reply, ops); err == nil && describe {
		c.described = now
	}
	return news, err
}

// shut fails every further operation.
func (c *combiner) shut() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
}
