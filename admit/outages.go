package admit

import (
	"context"
	"errors"
	"sync"
	"time"

	"sema"
	"sema/each"
	"sema/engine"
)

const (
	// askAgain is how long after a probe the next one begins.
	askAgain = time.Second

	// unused is how long an outage is looked at that no request asks about. After
	// that the next request finds out by itself.
	unused = time.Minute
)

// outages knows whether an engine answers.
type outages struct {
	mu    sync.Mutex
	away  *outage       // nil: it answers, as far as is known
	begun chan struct{} // closed when the next outage begins; nil: nobody waits for that
}

// outage is a time in which the engine does not answer.
type outage struct {
	err  error         // what it said last
	used time.Time     // when a request last went by it
	over chan struct{} // closed when the engine answers again
}

// probe is how an engine is asked whether it is back.
type probe struct {
	request  Request
	options  Options
	patience time.Duration
	ctx      context.Context
}

// failure is what the engine said last, if it is away. The channel is closed when it
// is back.
func (x *outages) failure() (over <-chan struct{}, err error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.away == nil {
		return nil, nil
	}
	x.away.used = time.Now()
	return x.away.over, x.away.err
}

// await waits for an outage to begin, for most at most, and is failure then.
func (x *outages) await(ctx context.Context, most time.Duration) (over <-chan struct{}, err error) {
	x.mu.Lock()
	if x.away == nil {
		if x.begun == nil {
			x.begun = make(chan struct{})
		}
		begun := x.begun
		x.mu.Unlock()
		ctx, cancel := context.WithTimeout(ctx, most)
		defer cancel()
		select {
		case <-begun:
		case <-ctx.Done():
		}
	} else {
		x.mu.Unlock()
	}
	return x.failure()
}

// begin notes that the engine does not answer, and probes it in the background
// until it does. Then over is closed.
func (x *outages) begin(p probe, err error) (over <-chan struct{}) {
	err = forOthers(err)
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.away != nil {
		x.away.err, x.away.used = err, time.Now()
		return x.away.over
	}
	x.away = &outage{err, time.Now(), make(chan struct{})}
	if x.begun != nil {
		close(x.begun)
		x.begun = nil
	}
	go x.probe(p)
	return x.away.over
}

// probe asks once, and ends the outage or asks again later. What is to be asked
// is what the engine did not answer.
func (x *outages) probe(p probe) {
	next := time.Now().Add(askAgain)
	ctx, cancel := context.WithTimeout(p.ctx, p.patience)
	defer cancel()
	permit, err := p.request.acquire(ctx, p.options, 0)
	silent := errors.Is(err, sema.ErrEngine)
	x.mu.Lock()
	if silent {
		x.away.err = forOthers(err)
	}
	silent = silent || errors.Is(err, each.ErrTooMany) // no engine was asked
	if silent && time.Since(x.away.used) < unused {
		time.AfterFunc(time.Until(next), func() { x.probe(p) })
	} else {
		close(x.away.over)
		x.away = nil
	}
	x.mu.Unlock()
	if permit != nil {
		_ = permit.Release() // what fails here ends with the lease
	}
}

// forOthers is the engine's own failure in err, without the end of the request's context:
// other requests fail with it, too.
func forOthers(err error) error {
	if failure, ok := errors.AsType[*engine.Error](err); ok {
		return failure
	}
	return err
}
