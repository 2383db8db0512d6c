package redisengine

import (
	"context"
	"fmt"
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

	// maxWait bounds what a caller waits for any call.
	maxWait = 10 * time.Second

	// minAttempt and maxAttempt bound one attempt on the wire, where the client
	// heeds contexts. Between them it is a third of the lease: a connection
	// that swallows everything must not outlast the permits it carries.
	minAttempt = 250 * time.Millisecond
	maxAttempt = 5 * time.Second
)

// combiner sends the operations of one session as calls of the step script.
// While a call is in flight, further operations gather and leave together in
// the next: a call costs the server little more for a hundred operations than
// for one. Nothing waits when no call is in flight. One call at a time also
// means that operations take effect in the order they were made.
type combiner struct {
	rdb         redis.UniversalClient
	name        string
	keys        keys
	client      string
	description string
	news        func(message string) // takes what the reply tells beside the answers

	mu        sync.Mutex
	pending   []*call
	flying    bool
	described time.Time     // when the server was last told who the client is
	lease     time.Duration // the last one asked for
	closed    bool
}

// call is some operations of one caller.
type call struct {
	ops     []op
	done    chan struct{} // closed when the result is there
	answers []sema.Answer
	err     error
	unsure  bool // an attempt failed with unknown outcome: it may have been the one that counted
}

// one carries out one operation.
func (c *combiner) one(ctx context.Context, what string, o op) (sema.Answer, error) {
	list, err := c.do(ctx, what, []op{o})
	if err != nil {
		return sema.Answer{}, err
	}
	return list[0], nil
}

// do carries out operations, in order though maybe in several steps, and waits
// for their answers. When ctx ends first, they may still be carried out.
func (c *combiner) do(ctx context.Context, what string, ops []op) ([]sema.Answer, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	var calls []*call
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		return nil, c.wrap(ctx, what, sema.ErrClosed, true)
	}
	for len(ops) > 0 {
		n := min(len(ops), maxOps)
		calls = append(calls, &call{ops: ops[:n], done: make(chan struct{})})
		ops = ops[n:]
	}
	c.pending = append(c.pending, calls...)
	if !c.flying && len(calls) > 0 {
		c.flying = true
		go c.fly()
	}
	c.mu.Unlock()

	limit := time.NewTimer(maxWait)
	defer limit.Stop()
	var all []sema.Answer
	for _, k := range calls {
		select {
		case <-k.done:
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-limit.C:
			return nil, c.wrap(ctx, what, fmt.Errorf("no answer within %v", maxWait), false)
		}
		if k.err != nil {
			return nil, c.wrap(ctx, what, k.err, !k.unsure)
		}
		for i := range k.answers {
			// A release that was sent twice and found nothing the second time
			// did its work the first time.
			if k.unsure && k.ops[i].kind == releaseOp {
				k.answers[i].Status = found
			}
		}
		if all == nil {
			all = k.answers
		} else {
			all = append(all, k.answers...)
		}
	}
	return all, nil
}

func (c *combiner) wrap(ctx context.Context, op string, err error, notExecuted bool) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return wrap(op, c.name, err, notExecuted)
}

// fly sends what is pending until nothing is.
func (c *combiner) fly() {
	for {
		c.mu.Lock()
		n, ops := 0, 0
		for n < len(c.pending) && (n == 0 || ops+len(c.pending[n].ops) <= maxOps) {
			ops += len(c.pending[n].ops)
			n++
		}
		if n == 0 {
			c.flying = false
			c.mu.Unlock()
			return
		}
		batch := c.pending[:n:n]
		if c.pending = c.pending[n:]; len(c.pending) == 0 {
			c.pending = nil
		}
		c.mu.Unlock()
		c.send(batch)
	}
}

// send carries out a batch of calls as one step, trying again while there is
// hope. All operations name their permits, so a step whose answer was lost can
// be sent again.
func (c *combiner) send(batch []*call) {
	var ops []op
	for _, k := range batch {
		ops = append(ops, k.ops...)
	}
	began := time.Now()
	var list []sema.Answer
	var news string
	var err, told error
	unsure := false
	for pause := 10 * time.Millisecond; ; pause = min(2*pause, 200*time.Millisecond) {
		list, news, err = c.attempt(ops)
		if err == nil {
			break
		}
		f := sortError(err)
		unsure = unsure || !f.notExecuted
		if f.hint != "" {
			told = err
		}
		if !f.retry || time.Since(began)+pause > patience {
			break
		}
		time.Sleep(pause)
	}
	if err != nil && told != nil {
		err = told // says more than how the connection ended the last time
	}
	if err == nil && news != "" {
		c.news(news)
	}
	at := 0
	for _, k := range batch {
		if k.err, k.unsure = err, unsure; err == nil {
			k.answers = list[at : at+len(k.ops) : at+len(k.ops)]
			at += len(k.ops)
		}
		close(k.done)
	}
}

func (c *combiner) attempt(ops []op) ([]sema.Answer, string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), c.attemptTime(ops))
	defer cancel()
	description, keep := c.describe(ops)
	args := make([]any, 0, 4+7*len(ops))
	args = append(args, c.keys.inboxes(), c.client, description, keep)
	for _, o := range ops {
		args = o.words(args)
	}
	reply, err := runStep(ctx, c.rdb, append(c.keys.main[:], c.keys.client(c.client)), args)
	if err != nil {
		return nil, "", err
	}
	list, news, err := answers(reply, ops)
	if err == nil && description != "" {
		c.mu.Lock()
		c.described = time.Now()
		c.mu.Unlock()
	}
	return list, news, err
}

// attemptTime is how long one attempt may take.
func (c *combiner) attemptTime(ops []op) time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, o := range ops {
		if o.lease > 0 {
			c.lease = o.lease
		}
	}
	if c.lease == 0 {
		return maxAttempt
	}
	return min(maxAttempt, max(minAttempt, c.lease/3))
}

// describe says who the client is, if a permit or ticket is at stake and the
// server may have forgotten, and for how many milliseconds to keep it.
func (c *combiner) describe(ops []op) (description string, keep int64) {
	var lease time.Duration
	for _, o := range ops {
		lease = max(lease, o.lease)
	}
	ttl := 2*lease + time.Minute
	c.mu.Lock()
	defer c.mu.Unlock()
	if lease == 0 || time.Since(c.described) < ttl/3 {
		return "", 0
	}
	return c.description, ttl.Milliseconds()
}

// shut fails every further operation.
func (c *combiner) shut() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
}
