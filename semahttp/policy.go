package semahttp

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"sema"
	"sema/internal/enum"
)

// Policy says what happens to a request when the engine does not answer, which
// an *sema.EngineError tells. That nothing is free, sema.ErrUnavailable, is an
// answer. The zero value is FailClosed.
//
// With FailClosed each request asks, for three seconds at most. With the others an
// engine that says nothing to a request for AnswerWithin is away. From then on no
// request waits for it: a probe in the background asks, at once and then in each
// second, and when it is answered requests ask again. That goes for all requests of
// a Transport or Handler, whatever their limiter, so their limiters should have one engine.
//
// A request that was queued before goes on waiting. If its wait ends while the
// engine is away, it does what the policy says. A request that has its permit keeps
// it until its lease ends, whatever the policy; then it is cancelled.
type Policy uint8

// The policies.
const (
	// FailClosed fails the request.
	FailClosed Policy = iota

	// FailOpen lets the request through without a limit.
	FailOpen

	// FailLocal lets requests through without a permit, at most Places at once of
	// a Transport or Handler, and PlacesPerKey of each limiter's name; others wait for
	// one of them to end. As many as that can run beside those that hold a permit.
	FailLocal
)

// String is the constant's name; Policy(42) for a value that is none of them.
func (p Policy) String() string {
	return enum.Name("Policy", p, "FailClosed", "FailOpen", "FailLocal")
}

// MaxPlaces is the most that FailLocal can let through at once.
const MaxPlaces = 1_000_000

// quickAnswer is the default of AnswerWithin, unless requests fail closed.
const quickAnswer = 100 * time.Millisecond

// admission is what a request is admitted under.
type admission struct {
	wait         time.Duration // 0: as long as the request lives
	policy       Policy
	answerWithin time.Duration // 0: the default
	places       int           // of FailLocal
	placesPerKey int
	observer     *Observer
}

// check says what a request cannot be admitted under.
func (a admission) check() error {
	switch {
	case a.wait < 0:
		return invalid("Wait", a.wait, "0 for the default, or more")
	case a.policy > FailLocal:
		return invalid("Policy", a.policy, "FailClosed, FailOpen or FailLocal")
	case a.answerWithin < 0:
		return invalid("AnswerWithin", a.answerWithin, "0 for the default, or more")
	case a.policy == FailLocal && (a.places < 1 || a.places > MaxPlaces):
		return invalid("Places", a.places, fmt.Sprintf("1 … %d", MaxPlaces))
	case a.policy != FailLocal && a.places != 0:
		return invalid("Places", a.places, "0 without FailLocal")
	case a.placesPerKey < 0 || a.placesPerKey > a.places:
		return invalid("PlacesPerKey", a.placesPerKey, fmt.Sprintf("0 … %d, the number of Places", a.places))
	}
	return nil
}

func invalid(what string, value any, want string) error {
	return &sema.ArgumentError{Package: "semahttp", What: what, Value: value, Want: want}
}

// gate admits requests: by a limiter, or by policy while the engine is away.
type gate struct {
	outages
	places places
}

// enter waits until the request may run.
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
	for {
		p, err := g.askOnce(ctx, r, l, a)
		if err != errAnswers {
			return p, err
		}
	}
}

// askOnce is ask, but fails with errAnswers if the request waited for a place until the
// engine was back.
func (g *gate) askOnce(ctx context.Context, r *http.Request, l Limiter, a admission) (*pass, error) {
	if a.policy == FailClosed {
		permit, err := l.acquire(ctx, a.answerWithin)
		if err != nil {
			if unanswered(err) && r.Context().Err() == nil {
				a.observer.engineFailed(EngineFailed{Request: r, Limiter: l.Name, Err: err})
			}
			return nil, err
		}
		return &pass{permit: permit}, nil
	}
	if over, failure := g.failure(); failure != nil {
		return g.without(ctx, r, l, a, failure, over)
	}
	patience := cmp.Or(a.answerWithin, quickAnswer)
	permit, err := l.acquire(ctx, patience)
	if errors.Is(err, sema.ErrTooManyKeys) {
		// Perhaps the others ask an engine that is away: then that is known within patience.
		if over, failure := g.await(ctx, 2*patience); failure != nil {
			return g.without(ctx, r, l, a, failure, over)
		}
		permit, err = l.acquire(ctx, patience)
	}
	switch {
	case err == nil:
		return &pass{permit: permit}, nil
	case r.Context().Err() != nil:
		return nil, err
	case unanswered(err):
		over := g.begin(probe{l, patience, context.WithoutCancel(r.Context())}, err)
		return g.without(ctx, r, l, a, err, over)
	case errors.Is(err, sema.ErrUnavailable):
		if over, failure := g.failure(); failure != nil { // it waited in a queue that does not move
			return g.without(ctx, r, l, a, failure, over)
		}
	}
	return nil, err
}

// without lets a request through by policy, unless the outage is over before.
func (g *gate) without(ctx context.Context, r *http.Request, l Limiter, a admission, failure error, over <-chan struct{}) (*pass, error) {
	told := EngineFailed{Request: r, Limiter: l.Name, Err: failure, Admitted: true, Local: a.policy == FailLocal}
	p := &pass{back: func() {}}
	if told.Local {
		leave, err := g.places.enter(ctx, over, l.Name, a.places, a.placesPerKey)
		if err == errAnswers {
			return nil, err
		}
		if err != nil {
			told.Admitted = false
			a.observer.engineFailed(told)
			return nil, fmt.Errorf("%w: %w: without its engine: %w", sema.ErrUnavailable, err, failure)
		}
		p.back = leave
	}
	a.observer.engineFailed(told)
	return p, nil
}
