package semahttp

import (
	"context"
	"net"
	"net/http"
	"slices"
	"strings"

	"sema"
	"sema/internal/gate"
)

// Limiter gives out permits under a name. The zero Limiter is for a request that
// is not limited.
type Limiter struct {
	// Name says in errors and reports what is limited. Limiters of the same name
	// share PlacesPerKey.
	Name string

	// Acquire waits for a permit, until ctx ends. On an error nothing is held. The options
	// are for the Semaphore that it asks: how long the engine may say nothing. Acquire
	// may be called in the background as well, with the values of a request's
	// context, to learn whether an engine that was away is back. Required.
	Acquire func(ctx context.Context, options ...sema.AcquireOption) (Permit, error)

	// State says who waits, for Handler.Position. Default: the position is not
	// told.
	State func(ctx context.Context) (sema.State, error)
}

// asking is how a request asks the limiter, and whom it tells of the engine.
func (l Limiter) asking(r *http.Request, o *Observer) gate.Asking {
	return gate.Asking{
		Name: l.Name,
		Acquire: func(ctx context.Context, options ...sema.AcquireOption) (gate.Permit, error) {
			return l.Acquire(ctx, options...)
		},
		Failed: func(f gate.Failed) { o.engineFailed(EngineFailed{r, l.Name, f.Err, f.Admitted, f.Local}) },
	}
}

// Permit is what a request holds while it runs: a *sema.Permit, or one that is made of
// some.
type Permit interface {
	Context(parent context.Context) context.Context
	Err() error
	Release() error
}

// given panics if an argument of a constructor is nil, with the *sema.ArgumentError that says so.
func given(is bool, what, want string) {
	if !is {
		panic(invalid(what, nil, want))
	}
}

// What constructors want that do not take nil.
const (
	aSemaphore = "a semaphore, such as sema.New makes"
	aFunction  = "a function"
)

// Of is a semaphore as a Limiter. It panics if s is nil.
func Of(s *sema.Semaphore) Limiter { return OfN(s, 1) }

// OfN is a semaphore as a Limiter for a request of weight n. It panics if s is nil.
func OfN(s *sema.Semaphore, n int) Limiter {
	given(s != nil, "semaphore", aSemaphore)
	return Limiter{Name: s.Name(), Acquire: permits(s.Acquire, sema.Weight(n)), State: s.State}
}

// All limits all requests by the same semaphore. It panics if s is nil.
func All(s *sema.Semaphore) func(*http.Request) Limiter {
	l := Of(s)
	return func(*http.Request) Limiter { return l }
}

// AllN is All for requests of different weights. A Handler answers 400 Bad Request
// to one whose weight is none, 413 Content Too Large to one above the limit. It panics if an
// argument is nil.
func AllN(s *sema.Semaphore, weight func(*http.Request) int) func(*http.Request) Limiter {
	given(s != nil, "semaphore", aSemaphore)
	given(weight != nil, "weight", aFunction)
	return func(r *http.Request) Limiter { return OfN(s, weight(r)) }
}

// PerKey has every request ask the same semaphore, shared among the requests' keys: a
// tenant, a user, a model. With sema.Options.PerKey each key has a limit of its own as
// well. Keys come from authentication: see sema.For. A key that cannot be one,
// such as an empty one, is the client's mistake: a Handler answers 400 Bad Request. It panics if
// an argument is nil.
func PerKey(s *sema.Semaphore, key func(*http.Request) string) func(*http.Request) Limiter {
	return PerKeyN(s, key, func(*http.Request) int { return 1 })
}

// PerKeyN is PerKey for requests of different weights. Weights are as for AllN. It panics if an
// argument is nil.
func PerKeyN(s *sema.Semaphore, key func(*http.Request) string, weight func(*http.Request) int) func(*http.Request) Limiter {
	given(s != nil, "semaphore", aSemaphore)
	given(key != nil, "key", aFunction)
	given(weight != nil, "weight", aFunction)
	var seen look
	return func(r *http.Request) Limiter {
		k, n := key(r), weight(r)
		state := func(ctx context.Context) (sema.State, error) { return seen.of(ctx, s, k) }
		return Limiter{Name: k, Acquire: permits(s.Acquire, sema.For(k), sema.Weight(n)), State: state}
	}
}

// ByHost has every request ask acquire for a permit under its [Host]. It may be
// the method Acquire of an *each.Group. It panics if acquire is nil.
func ByHost[P Permit](acquire func(ctx context.Context, host string, options ...sema.AcquireOption) (P, error)) func(*http.Request) Limiter {
	return ByKey(Host, acquire)
}

// ByKey has every request ask acquire for a permit under the request's key: a
// tenant, a model, a host. A request whose key is empty is not limited.
//
// Acquire may be the method Acquire of an *each.Group. A key that this refuses is
// the client's mistake: a Handler answers 400 Bad Request. ByKey panics if an argument is nil.
func ByKey[P Permit](key func(*http.Request) string, acquire func(ctx context.Context, key string, options ...sema.AcquireOption) (P, error)) func(*http.Request) Limiter {
	return ByKeyN(key, func(*http.Request) int { return 1 }, acquire)
}

// ByKeyN is ByKey for requests of different weights. Acquire gets the weight as an option. Weights
// are as for AllN. It panics if an argument is nil.
func ByKeyN[P Permit](key func(*http.Request) string, weight func(*http.Request) int, acquire func(ctx context.Context, key string, options ...sema.AcquireOption) (P, error)) func(*http.Request) Limiter {
	given(key != nil, "key", aFunction)
	given(weight != nil, "weight", aFunction)
	given(acquire != nil, "acquire", aFunction)
	return func(r *http.Request) Limiter {
		k := key(r)
		if k == "" {
			return Limiter{}
		}
		asks := func(ctx context.Context, options ...sema.AcquireOption) (P, error) {
			return acquire(ctx, k, options...)
		}
		return Limiter{Name: k, Acquire: permits(asks, sema.Weight(weight(r)))}
	}
}

// permits is acquire for all kinds of permits, with options before those of the call. A P that
// is nil is no Permit.
func permits[P Permit](acquire func(context.Context, ...sema.AcquireOption) (P, error), first ...sema.AcquireOption) func(context.Context, ...sema.AcquireOption) (Permit, error) {
	first = slices.Clip(first) // calls at once must not share what append adds
	return func(ctx context.Context, options ...sema.AcquireOption) (Permit, error) {
		var none P
		p, err := acquire(ctx, append(first, options...)...)
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
