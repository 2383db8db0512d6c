package sema

import (
	"context"
	"fmt"
)

// NestedError says that an acquisition would wait for its own caller. Its context comes from
// Permit.Context or Do of the same semaphore, and those permits are still held. The limit has
// no room for the new weight beside them. Nothing was changed. Work that outlives those permits
// acquires under a context of its own.
type NestedError struct {
	Name   string // of the semaphore
	Permit string // the id of the innermost of those that the context holds
	Held   int    // their weight
	Weight int    // asked for
	Limit  int    // as last seen
}

// Error names the semaphore, the permit and both weights.
func (e *NestedError) Error() string {
	return fmt.Sprintf("sema: %q would wait for itself: this runs under its permit %s, and %d of %d are taken that way", e.Name, e.Permit, e.Held, e.Limit)
}

type heldKey struct{}

// Value implements context.Context.
func (x *permitContext) Value(key any) any {
	if key == (heldKey{}) {
		return x
	}
	return x.Context.Value(key)
}

// under is the innermost context of a permit that ctx comes from, nil if there is none.
func under(ctx context.Context) *permitContext {
	x, _ := ctx.Value(heldKey{}).(*permitContext)
	return x
}

// nested fails if weight n can never be granted while the permits are held that ctx comes from.
func (s *Semaphore) nested(ctx context.Context, n int) error {
	first := under(ctx)
	held, limit, inner := 0, 0, (*Permit)(nil)
	for x := first; x != nil; x = under(x.Context) {
		p := x.permit
		if !s.same(p.h.sem) || counted(first, x) || p.Err() != nil {
			continue
		}
		if inner == nil {
			inner, limit = p, max(s.mayBecome(), p.h.sem.mayBecome())
		}
		held += p.Weight()
	}
	if held == 0 || held+n <= limit || n > limit { // the engine refuses what is above the limit
		return nil
	}
	return &NestedError{Name: s.name, Permit: inner.ID(), Held: held, Weight: n, Limit: limit}
}

// counted reports whether a context between first and x is of the same permit as x.
func counted(first, x *permitContext) bool {
	for first.permit.h != x.permit.h {
		first = under(first.Context)
	}
	return first != x
}

// same reports whether both are about one semaphore of one engine.
func (s *Semaphore) same(o *Semaphore) bool {
	return s == o || s.name == o.name && s.engine != nil && s.engine == o.engine
}

// mayBecome is the limit as last seen; the one given to New before that; and MaxLimit if the
// limit changes by itself.
func (s *Semaphore) mayBecome() int {
	if s.adapt != nil {
		return MaxLimit
	}
	s.loop.Lock()
	defer s.loop.Unlock()
	return s.seen()
}
