package main

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	xsync "golang.org/x/sync/semaphore"

	"sema"
	"sema/engines/memengine"
	"sema/engines/redisengine"
	"sema/internal/fixture/redistest"
	"sema/semahttp"
)

// The cost of limiting a request in one process: bare, with
// golang.org/x/sync/semaphore, and with semahttp in memory and on Redis. Above is
// a round trip to a server in the same process; below, what is done beside it.

func BenchmarkHTTPTransport(b *testing.B) {
	server := httptest.NewServer(http.HandlerFunc(hello))
	defer server.Close()
	nothing := roundTripper(func(*http.Request) (*http.Response, error) {
		return &http.Response{StatusCode: http.StatusOK, Body: io.NopCloser(empty{}), ContentLength: -1}, nil
	})
	for _, base := range []struct {
		name string
		http.RoundTripper
	}{{"loopback", &http.Transport{MaxIdleConnsPerHost: 100}}, {"nothing", nothing}} {
		for _, c := range contestants(b) {
			rt := c.transport(base.RoundTripper)
			b.Run(base.name+"/"+c.name, func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					r, err := http.NewRequest(http.MethodGet, server.URL, nil)
					if err != nil {
						b.Fatal(err)
					}
					resp, err := rt.RoundTrip(r)
					if err != nil {
						b.Fatal(err)
					}
					if _, err := io.Copy(io.Discard, resp.Body); err != nil {
						b.Fatal(err)
					}
					if err := resp.Body.Close(); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}

func BenchmarkHTTPHandler(b *testing.B) {
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 100}}
	defer client.CloseIdleConnections()
	for _, c := range contestants(b) {
		h := c.handler(http.HandlerFunc(hello))
		b.Run("loopback/"+c.name, func(b *testing.B) {
			server := httptest.NewServer(h)
			defer server.Close()
			b.ReportAllocs()
			for b.Loop() {
				resp, err := client.Get(server.URL)
				if err != nil {
					b.Fatal(err)
				}
				if _, err := io.Copy(io.Discard, resp.Body); err != nil {
					b.Fatal(err)
				}
				_ = resp.Body.Close()
			}
		})
	}
	for _, c := range contestants(b) {
		h := c.handler(http.HandlerFunc(hello))
		b.Run("nothing/"+c.name, func(b *testing.B) {
			r, w := httptest.NewRequest(http.MethodGet, "/", nil), httptest.NewRecorder()
			b.ReportAllocs()
			for b.Loop() {
				w.Body.Reset()
				h.ServeHTTP(w, r)
			}
		})
	}
}

// limit is one that nobody has to wait for.
const limit = 100

type contestant struct {
	name      string
	transport func(http.RoundTripper) http.RoundTripper
	handler   func(http.Handler) http.Handler
}

func contestants(b *testing.B) []contestant {
	b.Helper()
	weighted := xsync.NewWeighted(limit)
	all := []contestant{
		{"bare", func(rt http.RoundTripper) http.RoundTripper { return rt }, func(h http.Handler) http.Handler { return h }},
		{"x-sync", func(rt http.RoundTripper) http.RoundTripper { return xTransport(weighted, rt) }, func(h http.Handler) http.Handler { return xHandler(weighted, h) }},
	}
	rdb := redistest.Start(b).Client()
	onRedis, err := redisengine.New(rdb, nil)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = onRedis.Close() })
	for _, e := range []struct {
		name string
		sema.Engine
	}{{"sema-memory", memengine.New()}, {"sema-redis", onRedis}} {
		sem, err := sema.New(e.Engine, "bench", limit, nil)
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() { _ = sem.Close() })
		limiter := func(*http.Request) semahttp.Limiter { return semahttp.Of(sem) }
		all = append(all, contestant{
			e.name,
			func(rt http.RoundTripper) http.RoundTripper {
				return &semahttp.Transport{Base: rt, Limit: limiter}
			},
			func(h http.Handler) http.Handler { return &semahttp.Handler{Next: h, Limit: limiter} },
		})
	}
	return all
}

// xTransport is what one writes with x/sync: the permit lives until Close.
func xTransport(s *xsync.Weighted, base http.RoundTripper) http.RoundTripper {
	return roundTripper(func(r *http.Request) (*http.Response, error) {
		if err := s.Acquire(r.Context(), 1); err != nil {
			return nil, err
		}
		resp, err := base.RoundTrip(r)
		if err != nil {
			s.Release(1)
			return nil, err
		}
		resp.Body = &xBody{resp.Body, s}
		return resp, nil
	})
}

type xBody struct {
	io.ReadCloser
	s *xsync.Weighted
}

func (b *xBody) Close() error {
	defer b.s.Release(1)
	return b.ReadCloser.Close()
}

func xHandler(s *xsync.Weighted, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), 10e9)
		defer cancel()
		if err := s.Acquire(ctx, 1); err != nil {
			http.Error(w, "busy", http.StatusServiceUnavailable)
			return
		}
		defer s.Release(1)
		next.ServeHTTP(w, r)
	})
}

func hello(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "hello") }

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

type empty struct{}

func (empty) Read([]byte) (int, error) { return 0, io.EOF }
