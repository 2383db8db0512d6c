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
	"sema/each"
	"sema/engine"
	"sema/engine/memengine"
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
		Limit: semahttp.All(sem),
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
func ExampleByHost() {
	hosts, err := each.New(memengine.New(), "hosts", 2, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = hosts.Close() }()
	site := httptest.NewServer(http.HandlerFunc(hello))
	defer site.Close()
	client := &http.Client{Transport: &semahttp.Transport{Limit: semahttp.ByHost(hosts.Acquire)}}
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

// A limit for some requests only.
func ExampleOf() {
	uploads := semahttp.Of(semaphore("uploads", 2))
	app := &semahttp.Handler{
		Next: http.HandlerFunc(hello),
		Limit: func(r *http.Request) semahttp.Limiter {
			if r.Method == http.MethodPost {
				return uploads
			}
			return semahttp.Limiter{}
		},
	}
	for _, method := range []string{http.MethodGet, http.MethodPost} {
		w := httptest.NewRecorder()
		app.ServeHTTP(w, httptest.NewRequest(method, "/", nil))
		fmt.Println(method, w.Code)
	}
	// Output:
	// GET 200
	// POST 200
}

// A limit for each tenant; who gives no tenant is not limited.
func ExampleByKey() {
	tenants := map[string]*sema.Semaphore{"a": semaphore("tenant-a", 1), "b": semaphore("tenant-b", 1)}
	app := &semahttp.Handler{
		Next: http.HandlerFunc(hello),
		Limit: semahttp.ByKey(
			func(r *http.Request) string { return r.Header.Get("Tenant") },
			func(ctx context.Context, tenant string, options ...sema.AcquireOption) (*sema.Permit, error) {
				if l, ok := tenants[tenant]; ok {
					return l.Acquire(ctx, options...)
				}
				return nil, errors.New("no such tenant")
			}),
	}
	for _, tenant := range []string{"", "a", "c"} {
		w, r := httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/", nil)
		r.Header.Set("Tenant", tenant)
		app.ServeHTTP(w, r)
		fmt.Printf("%q: %d\n", tenant, w.Code)
	}
	// Output:
	// "": 200
	// "a": 200
	// "c": 500
}

// Requests that weigh more take more of the limit: here a page of a document takes one.
func ExampleAllN() {
	app := &semahttp.Handler{Next: http.HandlerFunc(hello), Limit: semahttp.AllN(semaphore("pages", 10), pages)}
	for _, pages := range []string{"3", "11", "none"} {
		w := httptest.NewRecorder()
		app.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/?pages="+pages, nil))
		fmt.Println(pages, w.Code)
	}
	// Output:
	// 3 200
	// 11 413
	// none 400
}

// pages is a request's weight; 0, which is none, if it says nothing of the kind.
func pages(r *http.Request) int {
	n, _ := strconv.Atoi(r.FormValue("pages"))
	return n
}

// Each tenant has ten pages at once. A key that cannot be is answered 400.
func ExampleByKeyN() {
	tenants, err := each.New(memengine.New(), "tenants", 10, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = tenants.Close() }()
	tenantOf := func(r *http.Request) string { return r.Header.Get("Tenant") }
	app := &semahttp.Handler{Next: http.HandlerFunc(hello), Limit: semahttp.ByKeyN(tenantOf, pages, tenants.Acquire)}
	for _, tenant := range []string{"acme", "a\tb"} {
		w, r := httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/?pages=10", nil)
		r.Header.Set("Tenant", tenant)
		app.ServeHTTP(w, r)
		fmt.Printf("%q: %d\n", tenant, w.Code)
	}
	// Output:
	// "acme": 200
	// "a\tb": 400
}

// Twenty requests at once in all, two of each tenant. A tenant with a thousand requests
// delays the others no more than one with two.
func ExamplePerKey() {
	sem, err := sema.New(memengine.New(), "api", 20, &sema.Options{PerKey: 2})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = sem.Close() }()
	tenantOf := func(r *http.Request) string { return r.Header.Get("Tenant") } // a real one looks up the API key
	app := &semahttp.Handler{Next: http.HandlerFunc(hello), Limit: semahttp.PerKey(sem, tenantOf)}
	for _, tenant := range []string{"acme", ""} {
		w, r := httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/", nil)
		r.Header.Set("Tenant", tenant)
		app.ServeHTTP(w, r)
		fmt.Printf("%q: %d\n", tenant, w.Code)
	}
	// Output:
	// "acme": 200
	// "": 400
}

// The same in pages: fifty at once in all, ten of each tenant.
func ExamplePerKeyN() {
	sem, err := sema.New(memengine.New(), "pages", 50, &sema.Options{PerKey: 10})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = sem.Close() }()
	tenantOf := func(*http.Request) string { return "acme" }
	app := &semahttp.Handler{Next: http.HandlerFunc(hello), Limit: semahttp.PerKeyN(sem, tenantOf, pages)}
	for _, pages := range []string{"10", "11"} {
		w := httptest.NewRecorder()
		app.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/?pages="+pages, nil))
		fmt.Println(pages, w.Code)
	}
	// Output:
	// 10 200
	// 11 413
}

// Two semaphores, by what is asked for. Check finds at the start what every request
// would fail for.
func ExampleOfN() {
	small, large := semaphore("small", 100), semaphore("large", 10)
	app := &semahttp.Handler{
		Next: http.HandlerFunc(hello),
		Limit: func(r *http.Request) semahttp.Limiter {
			if n := pages(r); n > 5 {
				return semahttp.OfN(large, n)
			}
			return semahttp.OfN(small, 1)
		},
	}
	fmt.Println(app.Check())
	fmt.Println((&semahttp.Transport{}).Check())
	// Output:
	// <nil>
	// semahttp: Limit nil: want a function such as All, ByHost or ByKey give
}

// What is refused says when to come again, and where it stood.
func ExampleHandler() {
	sem := semaphore("reports", 1)
	app := &semahttp.Handler{
		Next:       http.HandlerFunc(hello),
		Limit:      semahttp.All(sem),
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
func ExamplePolicy() {
	for _, app := range []*semahttp.Handler{
		{Policy: semahttp.FailClosed},
		{Policy: semahttp.FailLocal, Places: 2},
		{Policy: semahttp.FailOpen},
	} {
		app.Next = http.HandlerFunc(hello)
		app.Limit = func(*http.Request) semahttp.Limiter { return broken }
		app.Observer = semahttp.Observer{
			EngineFailed: func(e semahttp.EngineFailed) {
				fmt.Printf("%s: %v; admitted %v, counted here %v\n", e.Limiter, e.Err, e.Admitted, e.Local)
			},
			Abandoned: func(a semahttp.Abandoned) { fmt.Println("nobody closed", a.URL) },
		}
		w := httptest.NewRecorder()
		app.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", nil))
		fmt.Println(w.Code)
	}
	// Output:
	// api: sema: acquire "api": connection refused; admitted false, counted here false
	// 503
	// api: sema: acquire "api": connection refused; admitted true, counted here true
	// 200
	// api: sema: acquire "api": connection refused; admitted true, counted here false
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
	client := &http.Client{Transport: &semahttp.Transport{Limit: semahttp.All(sem), Wait: 10 * time.Millisecond}}
	_, err = client.Get("http://vendor.example/")
	fmt.Println(err)
	var seen *url.Error
	fmt.Println(errors.Is(err, sema.ErrBusy), errors.As(err, &seen) && seen.Timeout())
	// Output:
	// Get "http://vendor.example/": semahttp: "vendor": sema: no permit available: "vendor": context deadline exceeded
	// true true
}
