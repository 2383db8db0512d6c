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

// ByHost has every request ask acquire for a permit under its [Host].
func ByHost(acquire func(ctx context.Context, host string) (*sema.Permit, error)) func(*http.Request) Limiter {
	return ByKey(Host, acquire)
}

// ByKey has every request ask acquire for a permit under the request's key: a
// tenant, a model, a host. A request whose key is empty is not limited.
func ByKey(key func(*http.Request) string, acquire func(ctx context.Context, key string) (*sema.Permit, error)) func(*http.Request) Limiter {
	return func(r *http.Request) Limiter {
		if k := key(r); k != "" {
			return keyed{k, acquire}
		}
		return nil
	}
}

type keyed struct {
	key     string
	acquire func(context.Context, string) (*sema.Permit, error)
}

func (k keyed) Acquire(ctx context.Context) (*sema.Permit, error) { return k.acquire(ctx, k.key) }
func (k keyed) Name() string                                      { return k.key }

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
