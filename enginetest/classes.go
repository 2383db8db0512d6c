package enginetest

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"sema"
)

// semaphore, permit and operator are package sema's own. The test judges every error
// that they return.
type semaphore struct {
	*sema.Semaphore
	e *env
}

type permit struct {
	*sema.Permit
	e *env
}

type operator struct {
	*sema.Operator
	e *env
}

// got judges the error of a call, and returns the permit that the call returned.
func (e *env) got(ctx context.Context, p *sema.Permit, err error) (*permit, error) {
	if e.judged(ctx, err) != nil {
		return nil, err
	}
	return &permit{p, e}, nil
}

func (s *semaphore) Acquire(ctx context.Context, options ...sema.AcquireOption) (*permit, error) {
	p, err := s.Semaphore.Acquire(ctx, options...)
	return s.e.got(ctx, p, err)
}

func (s *semaphore) TryAcquire(ctx context.Context, options ...sema.AcquireOption) (*permit, error) {
	p, err := s.Semaphore.TryAcquire(ctx, options...)
	return s.e.got(ctx, p, err)
}

func (s *semaphore) Resume(ctx context.Context, id string) (*permit, error) {
	p, err := s.Semaphore.Resume(ctx, id)
	return s.e.got(ctx, p, err)
}

// Do does not judge an error with one of f's in it, which is f's own.
func (s *semaphore) Do(ctx context.Context, f func(context.Context) error, options ...sema.AcquireOption) error {
	own := false
	err := s.Semaphore.Do(ctx, func(ctx context.Context) error {
		err := f(ctx)
		own = err != nil
		return err
	}, options...)
	if own {
		return err
	}
	return s.e.judged(ctx, err)
}

func (s *semaphore) State(ctx context.Context) (sema.State, error) {
	st, err := s.Semaphore.State(ctx)
	return st, s.e.judged(ctx, err)
}

func (p *permit) Err() error { return p.e.judged(context.Background(), p.Permit.Err()) }

func (p *permit) Renew(ctx context.Context) error { return p.e.judged(ctx, p.Permit.Renew(ctx)) }

func (p *permit) Release() error { return p.e.judged(context.Background(), p.Permit.Release()) }

func (o *operator) State(ctx context.Context) (sema.State, error) {
	st, err := o.Operator.State(ctx)
	return st, o.e.judged(ctx, err)
}

func (o *operator) Set(ctx context.Context, rule sema.Rule, path ...string) error {
	return o.e.judged(ctx, o.Operator.Set(ctx, rule, path...))
}

func (o *operator) Unset(ctx context.Context, path ...string) error {
	return o.e.judged(ctx, o.Operator.Unset(ctx, path...))
}

func (o *operator) Pause(ctx context.Context) error { return o.e.judged(ctx, o.Operator.Pause(ctx)) }

func (o *operator) Unpause(ctx context.Context) error {
	return o.e.judged(ctx, o.Operator.Unpause(ctx))
}

func (o *operator) Remove(ctx context.Context) error { return o.e.judged(ctx, o.Operator.Remove(ctx)) }

func (o *operator) Revoke(ctx context.Context, id string) error {
	return o.e.judged(ctx, o.Operator.Revoke(ctx, id))
}

func (o *operator) RevokeTicket(ctx context.Context, id string) error {
	return o.e.judged(ctx, o.Operator.RevokeTicket(ctx, id))
}

func (o *operator) Release(ctx context.Context, id string) error {
	return o.e.judged(ctx, o.Operator.Release(ctx, id))
}

// judged returns err. The test fails if a program could mistake it.
func (e *env) judged(ctx context.Context, err error) error {
	e.Helper()
	if err != nil {
		if wrong := mistakable(ctx, err); wrong != "" {
			e.Errorf("the error %q of a call %s", err, wrong)
		}
	}
	return err
}

// mistakable says what is wrong with the error of a call that had ctx: "" if the error
// matches one class, and a context's error only if ctx ended so.
func mistakable(ctx context.Context, err error) string {
	var classes []string
	for name, class := range map[string]error{
		"ErrBusy": sema.ErrBusy, "ErrEngine": sema.ErrEngine, "ErrClosed": sema.ErrClosed, "ErrNotFound": sema.ErrNotFound,
		"ErrInUse": sema.ErrInUse, "ErrNoPool": sema.ErrNoPool, "ErrLost": sema.ErrLost, "ErrReleased": sema.ErrReleased,
	} {
		if errors.Is(err, class) {
			classes = append(classes, name)
		}
	}
	if _, ok := errors.AsType[*sema.WeightError](err); ok {
		classes = append(classes, "*WeightError")
	}
	if _, ok := errors.AsType[*sema.ArgumentError](err); ok {
		classes = append(classes, "*ArgumentError")
	}
	if _, ok := errors.AsType[*sema.LimitError](err); ok {
		classes = append(classes, "*LimitError")
	}
	if len(classes) != 1 {
		return fmt.Sprintf("matches the classes %v; want one", classes)
	}
	for _, end := range []error{context.Canceled, context.DeadlineExceeded} {
		switch {
		case !errors.Is(err, end):
		case ctx.Err() != end:
			return fmt.Sprintf("matches %q, but its context says %v", end, ctx.Err())
		case classes[0] != "ErrBusy" && classes[0] != "ErrEngine":
			return fmt.Sprintf("matches %q beside %s", end, classes[0])
		}
	}
	if text := err.Error(); strings.Contains(text, "\n") || strings.Contains(text+" ", ".. ") {
		return "has a line break, or a doubled full stop"
	}
	return ""
}
