package sema

import (
	"context"
	"fmt"

	"sema/engine"
)

// NestedError says that an acquisition would wait for its own caller. Its context comes from
// Permit.Context or Do of the same semaphore, and those permits are still held. The limit, or a
// pool, has no room for what is asked for beside them. Nothing was changed. A permit of Resume
// counts for the limit alone. Work that outlives those permits acquires under a context of its own.
type NestedError struct {
	Name   string // of the semaphore
	Permit string // the id of the innermost of those that the context holds
	Pool   string // the one without room, by whose amounts the others count; "": the limit
	Held   int    // their weight
	Weight int    // asked for
	Limit  int    // as last seen
}

// Error names the semaphore, the permit and both weights.
func (e *NestedError) Error() string {
	of := ""
	if e.Pool != "" {
		of = " of " + e.Pool
	}
	return fmt.Sprintf("sema: %q would wait for itself: this runs under its permit %s, and %d of %d%s are taken that way", e.Name, e.Permit, e.Held, e.Limit, of)
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

// PermitFrom is the permit under which a context runs: the innermost whose Context, or Do, ctx comes from. It is nil if there is none.
func PermitFrom(ctx context.Context) *Permit {
	if x := under(ctx); x != nil {
		return x.permit
	}
	return nil
}

// nested fails if a wish can never be granted while the permits are held that ctx comes from. Time brings rates back.
func (s *Semaphore) nested(ctx context.Context, w wish) error {
	first := under(ctx)
	err := s.nestedIn(first, "", w.weight)
	for pool, n := range w.Takes.All() {
		if err == nil && !s.comesBack(pool) {
			err = s.nestedIn(first, pool, n)
		}
	}
	return err
}

// nestedIn fails if n of a pool, or of the limit, can never be granted while the permits of a context are held.
func (s *Semaphore) nestedIn(first *permitContext, pool string, n int) error {
	held, most, inner := 0, 0, (*Permit)(nil)
	for x := first; x != nil; x = under(x.Context) {
		p := x.permit
		if !s.same(p.h.sem) || counted(first, x) || p.Err() != nil {
			continue
		}
		if inner == nil {
			inner, most = p, max(s.mayBecome(pool), p.h.sem.mayBecome(pool))
		}
		held += p.has(pool)
	}
	if held == 0 || held+n <= most || n > most { // the engine refuses what is above the limit
		return nil
	}
	return &NestedError{Name: s.name, Permit: inner.ID(), Pool: pool, Held: held, Weight: n, Limit: most}
}

// has is how much a permit has of a pool; of the limit, its weight.
func (p *Permit) has(pool string) int {
	if pool == "" {
		return p.Weight()
	}
	return p.h.Takes.Of(pool)
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

// comesBack reports whether a pool is a rate, as last seen.
func (s *Semaphore) comesBack(pool string) bool {
	s.loop.Lock()
	defer s.loop.Unlock()
	return s.loop.Machine.Pools().Amount(pool).Per > 0
}

// mayBecome is how much there is of a pool, or of the limit, as last seen; the limit given to New before that; and engine.MaxLimit if
// the limit changes by itself, or is only watched.
func (s *Semaphore) mayBecome(pool string) int {
	if pool == "" && s.adapt != nil {
		return engine.MaxLimit
	}
	s.loop.Lock()
	defer s.loop.Unlock()
	if s.loop.Machine.Watched() {
		return engine.MaxLimit
	}
	if pool == "" {
		return s.seen()
	}
	return s.loop.Machine.Pools().Of(pool)
}
