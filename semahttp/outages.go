package semahttp

import (
	"context"
	"errors"
	"sync"
	"time"

	"sema"
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
	err  error     // what it said last
	used time.Time // when a request last went by it
}

// probe is how an engine is asked whether it is back.
type probe struct {
	limiter  Limiter
	patience time.Duration
	ctx      context.Context
}

// failure is what the engine said last, if it is away.
func (x *outages) failure() error {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.away == nil {
		return nil
	}
	x.away.used = time.Now()
	return x.away.err
}

// await waits for an outage to begin, for most at most, and returns its failure.
func (x *outages) await(ctx context.Context, most time.Duration) error {
	x.mu.Lock()
	if x.away == nil {
		if x.begun == nil {
			x.begun = make(chan struct{})
		}
		begun := x.begun
		x.mu.Unlock()
		late := time.NewTimer(most)
		defer late.Stop()
		select {
		case <-begun:
		case <-late.C:
		case <-ctx.Done():
		}
	} else {
		x.mu.Unlock()
	}
	return x.failure()
}

// begin notes that the engine does not answer, and has it asked in the background
// until it does.
func (x *outages) begin(p probe, err error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.away != nil {
		x.away.err, x.away.used = err, time.Now()
		return
	}
	x.away = &outage{err, time.Now()}
	if x.begun != nil {
		close(x.begun)
		x.begun = nil
	}
	go x.probe(p)
}

// probe asks once, and ends the outage or asks again later. What is to be asked
// is a limiter whose engine did not answer.
func (x *outages) probe(p probe) {
	next := time.Now().Add(askAgain)
	ctx, cancel := context.WithTimeout(p.ctx, p.patience)
	defer cancel()
	permit, err := p.limiter.acquire(ctx, 0)
	silent := unanswered(err)
	x.mu.Lock()
	if silent {
		x.away.err = err
	}
	silent = silent || errors.Is(err, sema.ErrTooManyKeys) // no engine was asked
	if silent && time.Since(x.away.used) < unused {
		time.AfterFunc(time.Until(next), func() { x.probe(p) })
	} else {
		x.away = nil
	}
	x.mu.Unlock()
	if permit != nil {
		_ = permit.Release() // what fails here ends with the lease
	}
}
