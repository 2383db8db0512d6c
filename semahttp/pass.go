package semahttp

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"sync/atomic"

	"sema"
	"sema/admit"
)

// pass is what an admitted request holds: a permit, or what its policy gave it.
type pass struct {
	name   string // of the limiter
	permit admit.Permit
	why    atomic.Pointer[limitError]
}

// enter waits until the request may run. The pass is nil if no limiter is for it.
func enter(g *admit.Gate, r *http.Request, o admit.Options, limit func(*http.Request) Limiter, tell *Observer) (*pass, Limiter, error) {
	l := limit(r)
	switch {
	case l.Acquire == nil && l.Name != "":
		return nil, Limiter{}, invalid("Limiter.Acquire", nil, "a function, or the zero Limiter for a request that is not limited")
	case l.Acquire == nil:
		return nil, l, nil
	}
	p, err := g.Enter(r.Context(), o, admit.Request{
		Name:    l.Name,
		Acquire: l.Acquire,
		Failed: func(err error, admitted bool) {
			if tell.EngineFailed != nil {
				tell.EngineFailed(EngineFailed{r, l.Name, err, admitted})
			}
		},
	})
	if err != nil {
		return nil, l, &limitError{l.Name, err}
	}
	return &pass{name: l.Name, permit: p}, l, nil
}

// try is the *sema.ArgumentError with which limit panics for an empty request: that of Of without a semaphore.
// Another panic is about what the request has not.
func try(limit func(*http.Request) Limiter) (err error) {
	defer func() {
		if refused, ok := recover().(*sema.ArgumentError); ok {
			err = refused
		}
	}()
	limit(&http.Request{Method: http.MethodGet, URL: &url.URL{Path: "/"}, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Header: http.Header{}, Body: http.NoBody})
	return nil
}

// context is for the work of the request: it ends with parent, and when the
// permit is lost.
func (p *pass) context(parent context.Context) context.Context { return p.permit.Context(parent) }

// over is why the permit ended, if it was not by release.
func (p *pass) over() error {
	if err := p.permit.Err(); err != nil && !errors.Is(err, sema.ErrReleased) {
		p.why.CompareAndSwap(nil, &limitError{p.name, err})
	}
	// It is read after the permit, because release notes it before the permit says that it was released.
	if why := p.why.Load(); why != nil {
		return why
	}
	return nil
}

// release gives the pass back. It is called once. What the engine does not confirm
// soon is repeated in the background.
func (p *pass) release() {
	_ = p.over() // a permit that was released does not tell any more that it had been lost
	admit.Release(p.permit)
}
