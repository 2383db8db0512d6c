package semahttp_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"testing"

	"sema"
	"sema/internal/fixture/expect"
	"sema/semahttp"
)

// marked is a permit that notes whether its hold went badly.
type marked struct {
	bad, released chan struct{}
}

func (marked) Context(parent context.Context) context.Context { return parent }
func (marked) Err() error                                     { return nil }
func (m marked) Overloaded()                                  { close(m.bad) }
func (m marked) Release() error                               { close(m.released); return nil }

// one is a limiter that gives a permit once, and how that one went.
func one() (limit func(*http.Request) semahttp.Limiter, bad func(t *testing.T) bool) {
	m := marked{make(chan struct{}), make(chan struct{})}
	limit = func(*http.Request) semahttp.Limiter {
		return semahttp.Limiter{Name: "x", Acquire: func(context.Context, ...sema.AcquireOption) (semahttp.Permit, error) { return m, nil }}
	}
	return limit, func(t *testing.T) bool {
		<-m.released
		select {
		case <-m.bad:
			return true
		default:
			return false
		}
	}
}

func TestTransportMarksOverload(t *testing.T) {
	var answer int
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(answer) }))
	defer server.Close()
	for _, c := range []struct {
		answer int
		err    error
		judge  func(*http.Response, error) bool
		want   bool
	}{
		{answer: 200}, {answer: 404}, {answer: 500}, {answer: 429, want: true}, {answer: 503, want: true}, {answer: 504, want: true},
		{err: errors.New("refused")}, {err: context.DeadlineExceeded, want: true}, {err: os.ErrDeadlineExceeded, want: true},
		{answer: 429, judge: func(*http.Response, error) bool { return false }},
		{answer: 500, judge: func(a *http.Response, _ error) bool { return a.StatusCode == 500 }, want: true},
	} {
		limit, bad := one()
		answer = c.answer
		transport := &semahttp.Transport{Limit: limit, Overloaded: c.judge}
		if c.err != nil {
			transport.Base = failing{c.err}
		}
		resp, err := (&http.Client{Transport: transport}).Get(server.URL)
		if err == nil {
			expect.OK(t, resp.Body.Close())
		}
		if got := bad(t); got != c.want {
			t.Errorf("%d, %v: marked %v, want %v", c.answer, c.err, got, c.want)
		}
	}
}

// failing is a transport that fails.
type failing struct{ err error }

func (f failing) RoundTrip(*http.Request) (*http.Response, error) { return nil, f.err }

func TestHandlerMarksOverload(t *testing.T) {
	for _, http2 := range []bool{false, true} {
		for status, want := range map[int]bool{200: false, 404: false, 429: true, 503: true, 504: true} {
			limit, bad := one()
			handler := &semahttp.Handler{Limit: limit, Next: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.WriteHeader(status)
				w.(http.Flusher).Flush()
			})}
			server := httptest.NewUnstartedServer(handler)
			server.EnableHTTP2 = http2
			server.StartTLS()
			resp, err := server.Client().Get(server.URL)
			expect.OK(t, err)
			if resp.StatusCode != status || (resp.ProtoMajor == 2) != http2 {
				t.Errorf("%s %d", resp.Proto, resp.StatusCode)
			}
			expect.OK(t, resp.Body.Close())
			if got := bad(t); got != want {
				t.Errorf("%d: marked %v, want %v", status, got, want)
			}
			server.Close()
		}
	}
}
