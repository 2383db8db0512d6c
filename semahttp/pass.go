package semahttp

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"sema"
)

// releasePatience is how long the end of a request waits for the engine to take
// the permit back. After that the release goes on in the background.
const releasePatience = 250 * time.Millisecond

// pass is what an admitted request holds: a permit, or what its policy gave it.
type pass struct {
	name   string       // of the limiter
	permit *sema.Permit // or nil
	back   func()       // if there is no permit
	why    atomic.Pointer[limitError]
}

// context is for the work of the request: it ends with parent, and when the
// permit is lost.
func (p *pass) context(parent context.Context) context.Context {
	if p.permit == nil {
		return parent
	}
	return p.permit.Context(parent)
}

// over is why the permit ended, if it was not by release.
func (p *pass) over() error {
	if why := p.why.Load(); why != nil {
		return why
	}
	if p.permit == nil {
		return nil
	}
	err := p.permit.Err()
	if err == nil || errors.Is(err, sema.ErrReleased) {
		return nil
	}
	p.why.CompareAndSwap(nil, &limitError{p.name, err})
	return p.why.Load()
}

// release gives the pass back. It is called once. An error says that the permit
// had been lost, which its contexts have told, or that the engine did not
// confirm, which is repeated in the background.
func (p *pass) release() {
	if p.permit == nil {
		p.back()
		return
	}
	_ = p.over() // a permit that was released does not tell any more that it had been lost
	released := make(chan struct{})
	go func() {
		_ = p.permit.Release()
		close(released)
	}()
	late := time.NewTimer(releasePatience)
	defer late.Stop()
	select {
	case <-released:
	case <-late.C:
	}
}
