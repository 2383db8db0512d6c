package admit

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"sema"
	"sema/each"
	"sema/engine"
	"sema/internal/watchdog"
)

const (
	// askAgain is how long after a probe the next one begins.
	askAgain = time.Second

	// unused is how long an outage is looked at that no request asks about. After
	// that the next request finds out by itself.
	unused = time.Minute
)

// Outage is what an observer is told when an outage begins, and when it is over.
type Outage struct {
	Policy Policy // by which requests run meanwhile

	// Err is what the engine said last. At the end it is nil if the engine answers again. Else no request
	// has asked for a minute, and nobody looks any more.
	Err error

	Lasted time.Duration // 0 at the begin
}

// tell tells the observer, or else the log.
func (o Options) tell(x Outage) {
	switch {
	case o.Told != nil:
		o.Told(x)
	case x.Lasted == 0:
		slog.Warn("sema: the engine does not answer: requests go by the policy for outages", "policy", x.Policy.String(), "error", x.Err)
	case x.Err == nil:
		slog.Info("sema: the engine answers again", "policy", x.Policy.String(), "lasted", x.Lasted)
	default:
		slog.Info("sema: nobody asks the engine any more, which did not answer", "policy", x.Policy.String(), "lasted", x.Lasted, "error", x.Err)
	}
}

// outages knows whether an engine answers.
type outages struct {
	mu      sync.Mutex
	away    *outage       // nil: it answers, as far as is known
	begun   chan struct{} // closed when the next outage begins; nil: nobody waits for that
	doubted chan struct{} // closed when it is known whether one begins; nil: the engine is not in doubt
}

// outage is a time in which the engine does not answer.
type outage struct {
	err   error         // what it said last
	began time.Time     // when a request had first got no answer
	used  time.Time     // when a request last went by it
	over  chan struct{} // closed when the engine answers again
}

// probe is how an engine is asked whether it is back.
type probe struct {
	request  Request
	options  Options
	patience time.Duration
	ctx      context.Context
	began    time.Time // of the first one
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
		ctx, cancel := watchdog.Within(ctx, most)
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

// doubt waits for what the engine says when it is asked again, after it did not answer a request, and is
// failure then. Only silence that lasts is an outage: one answer may be late, or lost, or the process that
// waits for it may have stood still.
func (x *outages) doubt(ctx context.Context, p probe) (over <-chan struct{}, err error) {
	x.mu.Lock()
	if x.away == nil && x.doubted == nil {
		x.doubted = make(chan struct{})
		p.began = time.Now()
		go x.probe(p)
	}
	known := x.doubted
	x.mu.Unlock()
	if known != nil {
		select {
		case <-known:
		case <-ctx.Done():
		}
	}
	return x.failure()
}

// probe asks once, and begins an outage, ends it, or asks again later. What is to be asked
// is what the engine did not answer.
func (x *outages) probe(p probe) {
	next := time.Now().Add(askAgain)
	ctx, cancel := watchdog.Within(p.ctx, p.patience)
	defer cancel()
	permit, err := p.request.acquire(ctx, ctx, p.options, 0)
	if permit != nil {
		Release(permit) // before others ask
	}
	told := Outage{Policy: p.options.Outage}
	silent, changed := errors.Is(err, sema.ErrEngine), false
	if silent {
		told.Err = forOthers(err)
	}
	x.mu.Lock()
	switch {
	case silent && x.away == nil:
		x.away, changed = &outage{told.Err, p.began, time.Now(), make(chan struct{})}, true
		if x.begun != nil {
			close(x.begun)
			x.begun = nil
		}
	case silent:
		x.away.err = told.Err
	}
	silent = silent || x.away != nil && errors.Is(err, each.ErrTooMany) // no engine was asked
	switch {
	case silent && time.Since(x.away.used) < unused:
		time.AfterFunc(time.Until(next), func() { x.probe(p) })
	case x.away != nil:
		told.Lasted, changed = max(1, time.Since(x.away.began)), true
		close(x.away.over)
		x.away = nil
	}
	if x.doubted != nil {
		close(x.doubted)
		x.doubted = nil
	}
	x.mu.Unlock()
	if changed {
		p.options.tell(told)
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
