package semahttp

import (
	"context"
	"net"
	"net/http"
	"strings"

	"sema"
)

// Limiter gives out permits. A *sema.Semaphore is one.
type Limiter interface {
	// Acquire waits for a permit, until ctx ends. On an error nothing is held.
	Acquire(ctx context.Context) (*sema.Permit, error)

	// Name says in errors and reports what is limited. Limiters of the same name
	// share what FailLocal lets through.
	Name() string
}

// All has every request ask the same limiter.
func All(l Limiter) func(*http.Request) Limiter {
	return func(*http.Request) Limiter { return l }
}

// Permit is what a request holds while it runs: a *sema.Permit, or a
// *sema.KeyPermit.
type Permit interface {
	Context(parent context.Context) context.Context
	Err() error
	Release() error
}

// ByHost has every request ask acquire for a permit under its [Host]. It may be
// the method Acquire of a *sema.Keys.
func ByHost[P Permit](acquire func(ctx context.Context, host string) (P, error)) func(*http.Request) Limiter {
	return ByKey(Host, acquire)
}

// ByKey has every request ask acquire for a permit under the request's key: a
// tenant, a model, a host. A request whose key is empty is not limited.
func ByKey[P Permit](key func(*http.Request) string, acquire func(ctx context.Context, key string) (P, error)) func(*http.Request) Limiter {
	return func(r *http.Request) Limiter {
		if k := key(r); k != "" {
			return keyed[P]{k, acquire}
		}
		return nil
	}
}

type keyed[P Permit] struct {
	key     string
	acquire func(context.Context, string) (P, error)
}

func (k keyed[P]) Name() string { return k.key }

// Acquire implements Limiter. It is not called where take is.
func (k keyed[P]) Acquire(ctx context.Context) (*sema.Permit, error) {
	p, err := k.take(ctx)
	if err != nil {
		return nil, err
	}
	if one, ok := p.(*sema.Permit); ok {
		return one, nil
	}
	_ = p.Release()
	return nil, errNoPermit
}

// take is Acquire for all kinds of permits.
func (k keyed[P]) take(ctx context.Context) (Permit, error) {
	p, err := k.acquire(ctx, k.key)
	return given(p, err)
}

// acquire asks a limiter for a permit.
func acquire(ctx context.Context, l Limiter) (Permit, error) {
	if k, ok := l.(interface {
		take(context.Context) (Permit, error)
	}); ok {
		return k.take(ctx)
	}
	return given(l.Acquire(ctx))
}

// given is a permit, or an error: a limiter that gives neither is at fault.
func given[P Permit](p P, err error) (Permit, error) {
	var none P
	switch {
	case err != nil:
		return nil, err
	case any(p) == any(none):
		return nil, errNoPermit
	}
	return p, nil
}

// Host is the host that a request is for, in lower case, with the port unless
// it is the scheme's own: "example.org", "example.org:8080", "[::1]:8080".
func Host(r *http.Request) string {
	host, scheme := r.URL.Host, r.URL.Scheme
	if host == "" { // a request that is served
		host, scheme = r.Host, "http"
		if r.TLS != nil {
			scheme = "https"
		}
	}
	name, port, err := net.SplitHostPort(host)
	if err == nil && (port == "" || scheme == "http" && port == "80" || scheme == "https" && port == "443") {
		host = name
		if strings.Contains(name, ":") {
			host = "[" + name + "]"
		}
	}
	return strings.ToLower(host)
}
