package sema

import (
	"context"
	"errors"
	"runtime"
	"time"

	"sema/internal/loop"
)

// KeyPermit is a permit of a key and, where Keys has a total, one of the total:
// taken and given back together. Its methods are safe for concurrent use. If the
// program loses sight of it, both come back as a Permit does.
type KeyPermit struct {
	key, total *Permit // total may be nil
	use        *keyUse
	cleanup    runtime.Cleanup
}

// newKeyPermit makes a permit that keeps the key's Semaphore open until it is
// released, or the garbage collector finds that nobody can any more.
func newKeyPermit(p *Permit, use *keyUse) *KeyPermit {
	return &KeyPermit{key: p, use: use, cleanup: runtime.AddCleanup(p, (*keyUse).abandon, use)}
}

// Context is for the work that needs the permit, as Permit.Context is. It ends
// when either permit is lost.
func (p *KeyPermit) Context(parent context.Context) context.Context {
	key := p.key.Context(parent)
	if p.total == nil {
		return key
	}
	return &bothContext{p.total.Context(key), key}
}

// bothContext ends with both permits. Its Err is exact for both: that of the
// inner context looks at the total's clock, and this one at the key's.
type bothContext struct {
	context.Context
	key context.Context
}

// Err implements context.Context.
func (x *bothContext) Err() error {
	_ = x.key.Err() // ends the other if the key's permit is not valid any more
	return x.Context.Err()
}

// Err is nil while both permits are held and trusted, an ErrLost after one was
// lost, ErrReleased after they were released.
func (p *KeyPermit) Err() error {
	err := p.key.Err()
	if p.total != nil && (err == nil || errors.Is(err, ErrReleased)) {
		if of := p.total.Err(); of != nil {
			return of
		}
	}
	return err
}

// ID names the key's permit towards the engine and its operators.
func (p *KeyPermit) ID() string { return p.key.ID() }

// Weight is how much of the key's limit, and of the total, the permit takes.
func (p *KeyPermit) Weight() int { return p.key.Weight() }

// Token is the fencing token of the key's permit; see Permit.Token.
func (p *KeyPermit) Token() int64 { return p.key.Token() }

// Slot is the slot of the key's permit; see Permit.Slot.
func (p *KeyPermit) Slot() int { return p.key.Slot() }

// Deadline is when the permit's contexts will end unless it is renewed before:
// the earlier of the two permits'.
func (p *KeyPermit) Deadline() time.Time {
	d := p.key.Deadline()
	if p.total != nil {
		if of := p.total.Deadline(); of.Before(d) {
			return of
		}
	}
	return d
}

// Release gives back both permits, the total's first: it is what others are
// more likely to wait for. It returns nil when both were held until now, and
// otherwise what Permit.Release says of either.
func (p *KeyPermit) Release() error {
	var of error
	if p.total != nil {
		of = p.total.Release()
	}
	err := p.key.Release()
	p.cleanup.Stop()
	p.use.done()
	switch {
	case of == nil:
		return err
	case err == nil || errors.Is(of, ErrReleased) && errors.Is(err, ErrReleased):
		return of
	}
	return errors.Join(err, of)
}

// letGo releases the key's permit without the total's, and waits no longer for
// the engine than a caller carries a call. After that it goes on in the
// background, until the engine has answered or Keys is closed.
func (p *KeyPermit) letGo() {
	done := make(chan struct{})
	go func() {
		_ = p.Release()
		close(done)
	}()
	long := time.NewTimer(loop.QuickCall)
	defer long.Stop()
	select {
	case <-done:
	case <-long.C:
	}
}

// under runs f under a permit of either kind, and gives that back.
func under(ctx context.Context, p interface {
	Context(context.Context) context.Context
	Err() error
	Release() error
}, f func(context.Context) error) error {
	defer func() { _ = p.Release() }() // loss is reported below, the rest ends with the lease
	err := f(p.Context(ctx))
	if lost := p.Err(); lost != nil {
		return errors.Join(lost, err)
	}
	return err
}
