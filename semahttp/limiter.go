package semahttp

import (
	"context"
	"net"
	"net/http"
	"strings"
	"time"

	"sema"
)

// Limiter gives out permits under a name. The zero Limiter is for a request that
// is not limited.
type Limiter struct {
	// Name says in errors and reports what is limited. Limiters of the same name
	// share PlacesPerKey.
	Name string

	// Acquire waits for a permit, until ctx ends. On an error nothing is held. It
	// may be called in the background as well, with the values of a request's
	// context, to learn whether an engine that was away is back. Required.
	Acquire func(ctx context.Context) (Permit, error)

	// State says who waits, for Handler.Position. Default: the position is not
	// told.
	State func(ctx context.Context) (sema.State, error)
}

// acquire asks for a permit. The engine may be silent for so long; 0: as long as it
// is for others.
func (l Limiter) acquire(ctx context.Context, answerWithin time.Duration) (Permit, error) {
	if answerWithin > 0 {
		ctx = sema.AnswerWithin(ctx, answerWithin)
	}
	switch p, err := l.Acquire(ctx); {
	case err != nil:
		return nil, err
	case p == nil:
		return nil, errNoPermit
	default:
		return p, nil
	}
}

// Permit is what a request holds while it runs: a *sema.Permit, or a
// *sema.KeyPermit.
type Permit interface {
	Context(parent context.Context) context.Context
	Err() error
	Release() error
}

// Of is a semaphore as a Limiter.
func Of(s *sema.Semaphore) Limiter {
	return Limiter{Name: s.Name(), Acquire: permits(s.Acquire), State: s.State}
}

// All has every request ask the same semaphore.
func All(s *sema.Semaphore) func(*http.Request) Limiter {
	l := Of(s)
	return func(*http.Request) Limiter { return l }
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
		k := key(r)
		if k == "" {
			return Limiter{}
		}
		return Limiter{Name: k, Acquire: permits(func(ctx context.Context) (P, error) { return acquire(ctx, k) })}
	}
}

// permits is acquire for all kinds of permits. A P that is nil is no Permit.
func permits[P Permit](acquire func(context.Context) (P, error)) func(context.Context) (Permit, error) {
	return func(ctx context.Context) (Permit, error) {
		var none P
		p, err := acquire(ctx)
		if err != nil || any(p) == any(none) {
			return nil, err
		}
		return p, nil
	}
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
