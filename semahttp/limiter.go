package semahttp

import (
	"context"
	"net"
	"net/http"
	"slices"
	"strings"
	"time"

	"sema"
	"sema/admit"
	"sema/each"
	"sema/engine"
)

// Limiter gives out permits under a name. [Of] and [OfEach] make one. The zero Limiter is for
// a request that is not limited.
type Limiter struct {
	// Name says in errors and reports what is limited. Limiters of the same name
	// share the places of one key; see admit.Local.
	Name string

	// Acquire waits for a permit, until ctx ends. On an error nothing is held. The options
	// are for the semaphore that it asks: how long the engine may say nothing, and with NoWait
	// that the request does not wait. Acquire may be called in the background as well, with
	// the values of a request's context, to learn whether an engine that was away is back.
	// Required.
	Acquire func(ctx context.Context, options ...sema.AcquireOption) (Permit, error)

	semaphore *sema.Semaphore // whose queue Handler.Position tells; nil: of none
	key       engine.Key      // of the request
	priority  time.Duration   // of its acquisition
}

// Of limits a request by a semaphore:
//
//	semahttp.Of(sem, sema.For(tenant(r)), sema.Weight(n))
//
// The key may be a path, such as sema.For(organisation(r), user(r)). The Limiter's name is the key, or without one
// the semaphore's name; the names of a path have a slash between, see engine.Key. A Handler answers 400 Bad Request to a key or
// a weight that cannot be, and 413 Content Too Large to a weight above the limit. Of panics if s is nil.
func Of(s *sema.Semaphore, options ...sema.AcquireOption) Limiter {
	if s == nil {
		panic(invalid("semaphore", nil, "a semaphore, such as sema.New makes"))
	}
	asked := sema.ReadOptions(options...)
	l := Limiter{Name: s.Name(), Acquire: permits(s.Acquire, options), semaphore: s, key: asked.Key, priority: asked.Priority}
	if l.key != "" {
		l.Name = l.key.String()
	}
	return l
}

// OfEach limits a request by the semaphore that a Group has for a name, which is the Limiter's name
// as well. Its answers are those of Of. OfEach panics if g is nil.
func OfEach(g *each.Group, name string, options ...sema.AcquireOption) Limiter {
	if g == nil {
		panic(invalid("group", nil, "a group, such as each.New makes"))
	}
	acquire := func(ctx context.Context, options ...sema.AcquireOption) (*sema.Permit, error) {
		return g.Acquire(ctx, name, options...)
	}
	return Limiter{Name: name, Acquire: permits(acquire, options)}
}

// permits is acquire with options before those of the call.
func permits(acquire func(context.Context, ...sema.AcquireOption) (*sema.Permit, error), own []sema.AcquireOption) func(context.Context, ...sema.AcquireOption) (Permit, error) {
	own = slices.Clone(own) // the caller may change its own
	return func(ctx context.Context, options ...sema.AcquireOption) (Permit, error) {
		p, err := acquire(ctx, slices.Concat(own, options)...)
		if err != nil {
			return nil, err
		}
		return p, nil
	}
}

// Permit is what a request holds while it runs: a *sema.Permit, or one that is made of
// some.
type Permit = admit.Permit

// NoWait is for Handler.Wait and Transport.Wait: a request that finds nothing free is refused at once.
const NoWait = admit.NoWait

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
