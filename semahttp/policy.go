package semahttp

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"sema"
	"sema/internal/enum"
)

// Policy says what happens to a request when the engine does not answer, which
// an *sema.EngineError tells. That nothing is free, sema.ErrUnavailable, is an
// answer. The zero value is FailClosed.
//
// An engine that is out of reach keeps the first requests waiting for up to
// three seconds. After that, unless requests fail closed, one of them asks in
// each second. The others do what the policy says without asking. A request that has its permit
// keeps it until its lease ends, whatever the policy; then it is cancelled.
type Policy uint8

// The policies.
const (
	// FailClosed fails the request.
	FailClosed Policy = iota

	// FailOpen lets the request through without a limit.
	FailOpen

	// FailLocal lets requests through without a permit, at most Places at once for
	// each limiter in this process; others wait for one of them to end. As many as
	// that can run beside those that hold a permit.
	FailLocal
)

// String is the constant's name; Policy(42) for a value that is none of them.
func (p Policy) String() string {
	return enum.Name("Policy", p, "FailClosed", "FailOpen", "FailLocal")
}

// MaxPlaces is the most that FailLocal can let through at once.
const MaxPlaces = 1_000_000

// askAgain is how long requests go by themselves before one asks the engine
// again.
const askAgain = time.Second

// gate admits requests: by a limiter, or by policy while its engine is away.
type gate struct {
	mu      sync.Mutex
	outages map[string]*outage // by the limiter's name
	any     atomic.Bool        // whether there are outages
	sweepAt int                // when there are so many, old ones are forgotten
}

// outage is how a limiter's requests get by without its engine. It is kept while
// the engine is away, or a request that it let through is still running.
type outage struct {
	err    error         // what the engine said last; nil: it is back
	until  time.Time     // nobody asks the engine before
	users  int           // requests that were let through, or wait to be
	places chan struct{} // what FailLocal counts
}

// admission is what a request is admitted under.
type admission struct {
	wait     time.Duration // 0: as long as the request lives
	policy   Policy
	places   int // of FailLocal
	observer *Observer
}

// check says what a request cannot be admitted under.
func (a admission) check() error {
	switch {
	case a.wait < 0:
		return invalid("Wait", a.wait, "0 for the default, or more")
	case a.policy > FailLocal:
		return invalid("Policy", a.policy, "FailClosed, FailOpen or FailLocal")
	case a.policy == FailLocal && (a.places < 1 || a.places > MaxPlaces):
		return invalid("Places", a.places, fmt.Sprintf("1 … %d", MaxPlaces))
	case a.policy != FailLocal && a.places != 0:
		return invalid("Places", a.places, "0 without FailLocal")
	}
	return nil
}

func invalid(what string, value any, want string) error {
	return &sema.ArgumentError{Package: "semahttp", What: what, Value: value, Want: want}
}

// enter waits until the request may run. A nil pass without an error means that
// it is not limited.
func (g *gate) enter(r *http.Request, l Limiter, a admission) (*pass, error) {
	ctx := r.Context()
	if a.wait > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, a.wait)
		defer cancel()
	}
	p, err := g.ask(ctx, r, l, a)
	if err != nil {
		return nil, &limitError{l.Name, err}
	}
	p.name = l.Name
	return p, nil
}

func (g *gate) ask(ctx context.Context, r *http.Request, l Limiter, a admission) (*pass, error) {
	if a.policy != FailClosed && g.any.Load() {
		if o, err := g.bypass(l.Name); o != nil {
			return g.without(ctx, r, l, a, o, err)
		}
	}
	permit, err := l.Acquire(ctx)
	switch {
	case err == nil && permit == nil:
		return nil, errNoPermit
	case err == nil:
		g.answered(l.Name)
		return &pass{permit: permit}, nil
	case !unanswered(r.Context(), err):
		return nil, err
	case a.policy == FailClosed:
		a.observer.engineFailed(EngineFailed{Request: r, Limiter: l.Name, Err: err})
		return nil, err
	}
	return g.without(ctx, r, l, a, g.failed(l.Name, a.places, err), err)
}

// without lets a request through by policy.
func (g *gate) without(ctx context.Context, r *http.Request, l Limiter, a admission, o *outage, failure error) (*pass, error) {
	told := EngineFailed{Request: r, Limiter: l.Name, Err: failure, Admitted: true, Local: a.policy != FailOpen}
	p := &pass{back: func() { g.left(l.Name, o, false) }}
	if told.Local {
		if err := place(ctx, o.places); err != nil {
			g.left(l.Name, o, false)
			told.Admitted = false
			a.observer.engineFailed(told)
			return nil, fmt.Errorf("%w: %w: without its engine: %w", sema.ErrUnavailable, err, failure)
		}
		p.back = func() { g.left(l.Name, o, true) }
	}
	a.observer.engineFailed(told)
	return p, nil
}

// place takes one of the places. The engine may have used up the wait: then a
// free one is taken all the same.
func place(ctx context.Context, places chan struct{}) error {
	select {
	case places <- struct{}{}:
		return nil
	default:
	}
	select {
	case places <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// bypass is the outage under which a request need not ask the engine, if there
// is one.
func (g *gate) bypass(name string) (*outage, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	o := g.outages[name]
	if o == nil || o.err == nil {
		return nil, nil
	}
	if now := time.Now(); !now.Before(o.until) {
		o.until = now.Add(askAgain) // this one asks
		return nil, nil
	}
	o.users++
	return o, o.err
}

// failed notes that the engine did not answer.
func (g *gate) failed(name string, places int, err error) *outage {
	g.mu.Lock()
	defer g.mu.Unlock()
	o := g.outages[name]
	if o == nil {
		g.sweep()
		o = &outage{places: make(chan struct{}, places)}
		g.outages[name] = o
		g.any.Store(true)
	}
	o.err, o.until = err, time.Now().Add(askAgain)
	o.users++
	return o
}

// answered notes that the engine answered.
func (g *gate) answered(name string) {
	if !g.any.Load() {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if o := g.outages[name]; o != nil {
		o.err = nil
		g.forget(name, o)
	}
}

// left notes that a request that was let through has ended, and gives back its
// place.
func (g *gate) left(name string, o *outage, placed bool) {
	if placed {
		<-o.places
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	o.users--
	g.forget(name, o)
}

// forget removes an outage that nobody needs. The lock is held.
func (g *gate) forget(name string, o *outage) {
	if o.err == nil && o.users == 0 && g.outages[name] == o {
		delete(g.outages, name)
		g.any.Store(len(g.outages) > 0)
	}
}

// sweep forgets outages of limiters that nobody has used for a while, each time
// the number of outages has doubled. The lock is held.
func (g *gate) sweep() {
	if g.outages == nil {
		g.outages = map[string]*outage{}
	}
	if len(g.outages) < g.sweepAt {
		return
	}
	old := time.Now().Add(-time.Minute)
	maps.DeleteFunc(g.outages, func(_ string, o *outage) bool { return o.users == 0 && o.until.Before(old) })
	g.sweepAt = max(64, 2*len(g.outages))
}
