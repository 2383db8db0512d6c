package sema_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"sema"
	"sema/internal/fixture/expect"
	"sema/internal/protocol"
)

// wants is how a caller under the context of a permit asks for another.
type wants = func(ctx context.Context, e sema.Engine, s *sema.Semaphore) error

func refuses(t *testing.T, err error, want sema.NestedError) {
	t.Helper()
	var nested *sema.NestedError
	if !errors.As(err, &nested) {
		t.Errorf("%v; want a *NestedError", err)
		return
	}
	of := ""
	if want.Pool != "" {
		of = " of " + want.Pool
	}
	if nested.Permit == "" || nested.Error() != fmt.Sprintf("sema: %q would wait for itself: this runs under its permit %s, and %d of %d%s are taken that way", want.Name, nested.Permit, want.Held, want.Limit, of) {
		t.Error(nested)
	}
	nested.Permit = ""
	if *nested != want {
		t.Errorf("%+v; want %+v", *nested, want)
	}
}

// A wait for what the waiter holds would never end.
func TestAWaitUnderItsOwnPermitIsRefused(t *testing.T) {
	work := func(context.Context) error { return nil }
	for name, ask := range map[string]wants{
		"Do": func(ctx context.Context, _ sema.Engine, s *sema.Semaphore) error { return s.Do(ctx, work) },
		"Acquire": func(ctx context.Context, _ sema.Engine, s *sema.Semaphore) error {
			_, err := s.Acquire(ctx)
			return err
		},
		"a key": func(ctx context.Context, _ sema.Engine, s *sema.Semaphore) error {
			return s.Do(ctx, work, sema.For("a"))
		},
		"below": func(ctx context.Context, _ sema.Engine, s *sema.Semaphore) error {
			ctx, cancel := context.WithCancel(ctx)
			defer cancel()
			return s.Do(ctx, work)
		},
		"another of its name": func(ctx context.Context, e sema.Engine, _ *sema.Semaphore) error {
			s, err := sema.New(e, "x", 1, nil)
			if err != nil {
				return err
			}
			defer func() { _ = s.Close() }() // it holds nothing
			return s.Do(ctx, work)
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, nil, func(t *testing.T, e *counting, s *sema.Semaphore) {
				expect.OK(t, s.Do(t.Context(), func(ctx context.Context) error {
					refuses(t, ask(ctx, e, s), sema.NestedError{Name: "x", Held: 1, Weight: 1, Limit: 1})
					return nil
				}))
			})
		})
	}
}

// Weights add up, and one permit counts once however many contexts are made of it.
func TestWhatIsHeldAddsUp(t *testing.T) {
	bubble(t, nil, func(t *testing.T, e *counting, s *sema.Semaphore) {
		expect.OK(t, operator(t, e).Set(t.Context(), sema.Rule{Limit: 4}))
		a := acquire(t, s)
		ctx := a.Context(a.Context(t.Context()))
		b, err := s.Acquire(ctx, sema.Weight(2))
		expect.OK(t, err)
		c, err := s.Acquire(a.Context(b.Context(ctx)))
		expect.OK(t, err)
		expect.OK(t, c.Release())
		_, err = s.Acquire(b.Context(ctx), sema.Weight(2))
		refuses(t, err, sema.NestedError{Name: "x", Held: 3, Weight: 2, Limit: 4})
		var heavy *sema.WeightError
		if _, err = s.Acquire(ctx, sema.Weight(5)); !errors.As(err, &heavy) {
			t.Error(err)
		}
		expect.OK(t, b.Release())
		d, err := s.Acquire(b.Context(ctx), sema.Weight(2))
		if err == nil || errors.As(err, new(*sema.NestedError)) { // the context has ended
			t.Error(d, err)
		}
	})
}

// A pool that the caller itself has used up is waited for no more than the limit.
func TestAWaitForAPoolUnderItsOwnPermit(t *testing.T) {
	bubble(t, &sema.Options{Pools: "db=3,gpu=2"}, func(t *testing.T, e *counting, s *sema.Semaphore) {
		work := func(context.Context) error { return nil }
		expect.OK(t, s.Do(t.Context(), work)) // now there are its pools
		expect.OK(t, operator(t, e).Set(t.Context(), sema.Rule{Limit: 9}))
		expect.OK(t, s.Do(t.Context(), func(ctx context.Context) error {
			expect.OK(t, s.Do(ctx, func(ctx context.Context) error {
				_, err := s.Acquire(ctx, sema.Take("db", 1), sema.Take("gpu", 2))
				refuses(t, err, sema.NestedError{Name: "x", Pool: "gpu", Held: 1, Weight: 2, Limit: 2})
				_, err = s.Acquire(ctx, sema.Take("db", 2))
				refuses(t, err, sema.NestedError{Name: "x", Pool: "db", Held: 2, Weight: 2, Limit: 3})
				_, err = s.TryAcquire(ctx, sema.Take("db", 2))
				wantOnly(t, err, sema.ErrBusy, nil)
				var heavy *sema.WeightError
				if _, err = s.Acquire(ctx, sema.Take("db", 4)); !errors.As(err, &heavy) {
					t.Error(err)
				}
				return s.Do(ctx, work, sema.Take("db", 1), sema.Take("gpu", 1))
			}, sema.Take("db", 1)))
			expect.OK(t, operator(t, e).Set(t.Context(), sema.Rule{Pools: "gpu=3"}))
			p, err := s.TryAcquire(ctx) // the process sees the pools
			expect.OK(t, err)
			expect.OK(t, p.Release())
			return s.Do(ctx, work, sema.Take("gpu", 2))
		}, sema.Take("db", 1), sema.Take("gpu", 1)))
	})
}

// A context outlives the permit that it came from, for its values.
func TestAContextOfAPermitThatIsOver(t *testing.T) {
	bubble(t, nil, func(t *testing.T, e *counting, s *sema.Semaphore) {
		p := acquire(t, s)
		later := context.WithoutCancel(p.Context(t.Context()))
		_, err := s.Acquire(later)
		refuses(t, err, sema.NestedError{Name: "x", Held: 1, Weight: 1, Limit: 1})
		if _, err := s.TryAcquire(later); !errors.Is(err, sema.ErrBusy) {
			t.Error(err)
		}
		expect.OK(t, p.Release())
		expect.OK(t, s.Do(later, func(context.Context) error { return nil }))
	})
}

// uncomparable is an engine that is no pointer, and cannot be compared.
type uncomparable struct {
	sema.Engine
	_ []protocol.Session
}

func TestEnginesThatCannotBeCompared(t *testing.T) {
	bubble(t, nil, func(t *testing.T, e *counting, _ *sema.Semaphore) {
		one := semOf(t, uncomparable{Engine: e}, "z", 1, nil)
		other := semOf(t, uncomparable{Engine: e}, "z", 1, nil)
		expect.OK(t, one.Do(t.Context(), func(ctx context.Context) error {
			refuses(t, one.Do(ctx, func(context.Context) error { return nil }), sema.NestedError{Name: "z", Held: 1, Weight: 1, Limit: 1})
			ctx, cancel := context.WithTimeout(ctx, 1)
			defer cancel()
			if _, err := other.Acquire(ctx); !errors.Is(err, context.DeadlineExceeded) {
				t.Error(err)
			}
			return nil
		}))
	})
}

// The context of a permit costs three allocations. A look at what it holds costs none.
func TestWhatAPermitsContextCosts(t *testing.T) {
	bubble(t, nil, func(t *testing.T, e *counting, s *sema.Semaphore) {
		expect.OK(t, operator(t, e).Set(t.Context(), sema.Rule{Limit: 2}))
		p := acquire(t, s)
		parent, cancel := context.WithCancel(t.Context())
		defer cancel()
		if n := testing.AllocsPerRun(100, func() { p.Context(parent) }); n > 3 {
			t.Errorf("Context: %v allocations", n)
		}
		pair := func(ctx context.Context) float64 {
			return testing.AllocsPerRun(100, func() {
				p, err := s.Acquire(ctx)
				expect.OK(t, err)
				expect.OK(t, p.Release())
			})
		}
		if plain, nested := pair(parent), pair(p.Context(parent)); nested > plain {
			t.Errorf("Acquire and Release: %v allocations, and %v under a permit", plain, nested)
		}
	})
}
