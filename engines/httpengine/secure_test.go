//go:build unix

package httpengine_test

import (
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"sema"
	"sema/engines/httpengine"
	"sema/engines/memengine"
	"sema/internal/fixture/expect"
	"sema/internal/fixture/opened"
	"sema/internal/fixture/pipenet"
	"sema/server"
)

// Calls and notifications use TLS and a token, if the server requires them.
func TestTLSAndTokens(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tokens, err := server.ReadTokens(strings.NewReader("worker use * secret-of-the-worker"))
		expect.OK(t, err)
		e := memengine.New()
		s, err := server.New(e, &server.Options{Tokens: tokens})
		expect.OK(t, err)
		var upgraded atomic.Int32
		front := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.TLS == nil {
				t.Errorf("%s without TLS", r.URL.Path)
			}
			if r.URL.Path == "/v1/engine/calls" {
				upgraded.Add(1)
			}
			s.ServeHTTP(w, r)
		})
		h := &httptest.Server{Listener: pipenet.Listen(), Config: &http.Server{Handler: front, ErrorLog: log.New(io.Discard, "", 0)}}
		h.StartTLS()
		t.Cleanup(func() {
			s.Close()
			h.Close()
			_ = e.Close()
		})
		trusts := h.Client().Transport.(*http.Transport).TLSClientConfig
		dial := func(o *httpengine.Options) sema.Engine {
			c, err := httpengine.New(h.URL, o)
			expect.OK(t, err)
			c.DialBy(pipenet.Dial)
			t.Cleanup(func() { _ = c.Close() })
			return c
		}
		semaphore := func() *sema.Semaphore {
			return opened.Semaphore(t, dial(&httpengine.Options{Token: "worker.secret-of-the-worker", TLS: trusts}), "x", 1, nil)
		}
		ctx := expect.Within(t)
		p, err := semaphore().Acquire(ctx)
		expect.OK(t, err)
		next := make(chan *sema.Permit)
		go func() {
			p, err := semaphore().Acquire(ctx)
			if err != nil {
				t.Error(err)
			}
			next <- p
		}()
		synctest.Wait() // until the ask is queued
		expect.OK(t, p.Release())
		expect.OK(t, (<-next).Release())
		if n := upgraded.Load(); n != 2 {
			t.Errorf("%d upgraded connections; want one for each client", n)
		}

		for name, o := range map[string]*httpengine.Options{
			"another secret": {Token: "worker.wrong-secret", TLS: trusts},
			"no trust":       {Token: "worker.wrong-secret"},
		} {
			c := dial(o)
			if _, err := c.List(ctx); err == nil || strings.Contains(err.Error(), "wrong-secret") {
				t.Errorf("%s: error %v", name, err)
			}
			s, err := sema.New(c, "x", 1, nil)
			expect.OK(t, err)
			if _, err := s.TryAcquire(ctx); err == nil || strings.Contains(err.Error(), "wrong-secret") {
				t.Errorf("%s: error %v", name, err)
			}
			_ = s.Close()
		}
	})
}
