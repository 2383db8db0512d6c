package semahttp_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"time"

	"sema"
	"sema/admit"
	"sema/each"
	"sema/engine"
	"sema/engines/memengine"
	"sema/semahttp"
)

// semaphore is one with the engine that a test needs; programs use redisengine.
func semaphore(name string, limit int) *sema.Semaphore {
	sem, err := sema.New(memengine.New(), name, limit, nil)
	if err != nil {
		panic(err) // name and limit are ours
	}
	return sem
}

func hello(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, "hello") }

// At most five requests of this client, and of all others with this semaphore,
// run at once. The permit is given back when the body has been read.
func ExampleTransport() {
	vendor := httptest.NewServer(http.HandlerFunc(hello))
	defer vendor.Close()
	sem := semaphore("vendor", 5)

	client := &http.Client{Transport: &semahttp.Transport{
		Limit: func(*http.Request) semahttp.Limiter { return semahttp.Of(sem) },
		Wait:  10 * time.Second,
	}}
	defer client.CloseIdleConnections()
	resp, err := client.Get(vendor.URL)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	fmt.Println(string(body), err)
	state, err := sem.State(context.Background())
	fmt.Println(state.Limit-state.Used, "free again,", err)
	// Output:
	// hello <nil>
	// 5 free again, <nil>
}

// Two requests at a time for each host, whatever the number of hosts.
func ExampleOfEach() {
	hosts, err := each.New(memengine.New(), "hosts", 2, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = hosts.Close() }()
	site := httptest.NewServer(http.HandlerFunc(hello))
	defer site.Close()
	client := &http.Client{Transport: &semahttp.Transport{Limit: func(r *http.Request) semahttp.Limiter {
		return semahttp.OfEach(hosts, semahttp.Host(r))
	}}}
	defer client.CloseIdleConnections()
	resp, err := client.Get(site.URL)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(resp.Status, resp.Body.Close())
	fmt.Println(semahttp.Host(resp.Request) == resp.Request.URL.Host)
	// Output:
	// 200 OK <nil>
	// true
}

// Twenty pages at once in all, ten of each tenant; a request without a tenant is not limited. A tenant
// with a thousand requests delays the others no more than one with two.
func ExampleOf() {
	sem, err := sema.New(memengine.New(), "pages", 20, &sema.Options{Caps: sema.Caps{10}})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = sem.Close() }()
	app := &semahttp.Handler{
		Next: http.HandlerFunc(hello),
		Limit: func(r *http.Request) semahttp.Limiter {
			tenant := r.Header.Get("Tenant") // a real one looks up the API key
			if tenant == "" {
				return semahttp.Limiter{}
			}
			return semahttp.Of(sem, sema.For(tenant), sema.Weight(pages(r)))
		},
	}
	for _, c := range []struct{ tenant, pages string }{{"acme", "3"}, {"acme", "11"}, {"acme", "none"}, {"a\tb", "3"}, {"", "99"}} {
		w, r := httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/?pages="+c.pages, nil)
		r.Header.Set("Tenant", c.tenant)
		app.ServeHTTP(w, r)
		fmt.Printf("%q, %s pages: %d\n", c.tenant, c.pages, w.Code)
	}
	// Output:
	// "acme", 3 pages: 200
	// "acme", 11 pages: 413
	// "acme", none pages: 400
	// "a\tb", 3 pages: 400
	// "", 99 pages: 200
}

// pages is a request's weight; 0, which is none, if it says nothing of the kind.
func pages(r *http.Request) int {
	n, _ := strconv.Atoi(r.FormValue("pages"))
	return n
}

// A limiter that does more: here it counts the requests that wait. Check finds at the start what every
// request would fail for.
func ExampleLimiter() {
	sem := semaphore("api", 5)
	waiting := 0
	app := &semahttp.Handler{
		Next: http.HandlerFunc(hello),
		Limit: func(*http.Request) semahttp.Limiter {
			l := semahttp.Of(sem)
			acquire := l.Acquire
			l.Acquire = func(ctx context.Context, options ...sema.AcquireOption) (semahttp.Permit, error) {
				waiting++
				return acquire(ctx, options...)
			}
			return l
		},
	}
	fmt.Println(app.Check())
	app.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/", nil))
	fmt.Println(waiting)
	fmt.Println((&semahttp.Transport{}).Check())
	// Output:
	// <nil>
	// 1
	// semahttp: Limit nil: want a function that returns a Limiter
}

// What is refused says when to come again, and where it stood.
func ExampleHandler() {
	sem := semaphore("reports", 1)
	app := &semahttp.Handler{
		Next:       http.HandlerFunc(hello),
		Limit:      func(*http.Request) semahttp.Limiter { return semahttp.Of(sem) },
		Wait:       20 * time.Millisecond,
		Status:     http.StatusTooManyRequests,
		RetryAfter: 5 * time.Second,
		Position:   "X-Queue-Position",
	}
	get := func() {
		w := httptest.NewRecorder()
		app.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", nil))
		fmt.Println(w.Code, w.Header().Get("Retry-After"), w.Header().Get("X-Queue-Position"))
	}
	permit, err := sem.Acquire(context.Background()) // somebody else is at it
	if err != nil {
		fmt.Println(err)
		return
	}
	get()
	fmt.Println(permit.Release())
	get()
	// Output:
	// 429 5 1
	// <nil>
	// 200
}

// broken is a limiter whose engine is away.
var broken = semahttp.Limiter{Name: "api", Acquire: func(context.Context, ...sema.AcquireOption) (semahttp.Permit, error) {
	return nil, &engine.Error{Op: "acquire", Name: "api", Err: errors.New("connection refused")}
}}

// What happens while the engine does not answer is chosen, and told.
func ExampleHandler_outage() {
	for _, policy := range []admit.Policy{admit.Closed, admit.Local(2, 1), admit.Open.After(time.Second)} {
		app := &semahttp.Handler{
			Next:   http.HandlerFunc(hello),
			Limit:  func(*http.Request) semahttp.Limiter { return broken },
			Outage: policy,
			Observer: semahttp.Observer{
				EngineFailed: func(e semahttp.EngineFailed) {
					fmt.Printf("%v, %s: %v; admitted %v\n", policy, e.Limiter, e.Err, e.Admitted)
				},
				Abandoned: func(a semahttp.Abandoned) { fmt.Println("nobody closed", a.URL) },
			},
		}
		w := httptest.NewRecorder()
		app.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", nil))
		fmt.Println(w.Code)
	}
	// Output:
	// admit.Closed, api: sema: acquire "api": connection refused; admitted false
	// 503
	// admit.Local(2, 1), api: sema: acquire "api": connection refused; admitted true
	// 200
	// admit.Open.After(1s), api: sema: acquire "api": connection refused; admitted true
	// 200
}

// Errors of sema are seen through those of an http.Client.
func ExampleTransport_errors() {
	sem := semaphore("vendor", 1)
	permit, err := sem.Acquire(context.Background())
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = permit.Release() }()
	limit := func(*http.Request) semahttp.Limiter { return semahttp.Of(sem) }
	client := &http.Client{Transport: &semahttp.Transport{Limit: limit, Wait: 10 * time.Millisecond}}
	_, err = client.Get("http://vendor.example/")
	fmt.Println(err)
	var seen *url.Error
	fmt.Println(errors.Is(err, sema.ErrBusy), errors.As(err, &seen) && seen.Timeout())
	// Output:
	// Get "http://vendor.example/": semahttp: "vendor": sema: no permit available: "vendor": context deadline exceeded
	// true true
}
