package httpengine_test

import (
	"context"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"sema"
	"sema/engine"
	"sema/engines/httpengine"
	"sema/internal/fixture/expect"
	"sema/internal/fixture/opened"
)

// What waiting cannot cure fails at once, and says what to try. The acquisition is patient, so it
// would wait if the error were temporary.
func TestWhatNeverGetsBetter(t *testing.T) {
	t.Parallel()
	status := func(code int, body string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/html")
			w.WriteHeader(code)
			_, _ = io.WriteString(w, body)
		}
	}
	const url, noTLS = "that of sema serve", "http://"
	for what, c := range map[string]struct {
		answer http.HandlerFunc
		tls    bool   // the server's
		scheme string // "": the server's
		hint   string
	}{
		"a page":  {answer: status(200, "<html>It works!</html>"), hint: url},
		"nothing": {answer: status(204, ""), hint: url},
		"a redirect": {answer: func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "https://example.com/", http.StatusMovedPermanently)
		}, hint: url},
		"no such page":                 {answer: status(404, "<html>not found</html>"), hint: url},
		"no such method":               {answer: status(405, ""), hint: url},
		"no such method, of Python's":  {answer: status(501, "<html>Unsupported method ('POST')</html>"), hint: url},
		"a version of HTTP":            {answer: status(505, ""), hint: url},
		"TLS to a plain server":        {answer: status(404, ""), scheme: "https", hint: noTLS},
		"no TLS to a server with TLS":  {answer: status(404, ""), tls: true, scheme: "http", hint: "https://"},
		"a certificate nobody vouches": {answer: status(404, ""), tls: true, hint: "certificate"},
		"401 of a proxy":               {answer: status(401, "<html>"), hint: url},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			h := httptest.NewUnstartedServer(c.answer)
			h.Config.ErrorLog = log.New(io.Discard, "", 0)
			if c.tls {
				h.StartTLS()
			} else {
				h.Start()
			}
			t.Cleanup(h.Close)
			address := h.URL
			if _, rest, _ := strings.Cut(address, ":"); c.scheme != "" {
				address = c.scheme + ":" + rest
			}
			e, err := httpengine.New(address, nil)
			expect.OK(t, err)
			t.Cleanup(func() { _ = e.Close() })
			s := opened.Semaphore(t, e, "x", 1, &sema.Options{Patient: true})
			_, err = s.Acquire(expect.Within(t))
			var failure *engine.Error
			if !errors.As(err, &failure) || errors.Is(err, context.DeadlineExceeded) || failure.Temporary || !strings.Contains(failure.Hint, c.hint) {
				t.Errorf("%v: %+v", err, failure)
			}
			t.Log(err)
		})
	}
}

func TestInvalidArguments(t *testing.T) {
	longest := "a." + strings.Repeat("s", 4094)
	for _, c := range []struct{ url, token, refused string }{
		{"http://localhost", "", ""},
		{"https://localhost:1/path/", "a.b", ""},
		{"http://localhost", "abcdefghij123456.secret.with.dots", ""},
		{"http://localhost", longest, ""},
		{"", "", "URL"}, {"localhost:7362", "", "URL"}, {"ftp://localhost", "", "URL"}, {"http://", "", "URL"},
		{"http://user:password@localhost", "", "URL"}, {"http://localhost?token=x", "", "URL"}, {"http://local\x00host", "", "URL"},
		{"http://" + strings.Repeat("[", 100_000), "", "URL"},
		{"http://localhost", longest + "s", "token"},
		{"http://localhost", "secret", "token"}, {"http://localhost", "a.", "token"}, {"http://localhost", ".secret", "token"},
		{"http://localhost", "A.secret", "token"}, {"http://localhost", "abcdefghij1234567.secret", "token"},
		{"http://localhost", "a.secret\r\nHost: b", "token"}, {"http://localhost", "a.sécret", "token"},
	} {
		e, err := httpengine.New(c.url, &httpengine.Options{Token: c.token})
		var refused *engine.ArgumentError
		switch {
		case c.refused == "" && err == nil:
			_ = e.Close()
		case c.refused == "" || !errors.As(err, &refused) || refused.What != c.refused:
			t.Errorf("%.50q, %.50q: %v, want %q refused", c.url, c.token, err, c.refused)
		case strings.Contains(err.Error(), "secret") || strings.Contains(err.Error(), "password") || len(err.Error()) > 500:
			t.Errorf("the error says too much: %v", err)
		}
	}
}

// Close does not wait for a silent server until the lease of one hour ends.
func TestCloseWithASilentServer(t *testing.T) {
	t.Parallel()
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	expect.OK(t, err)
	defer func() { _ = silent.Close() }() // no connection is ever answered
	e, err := httpengine.New("http://"+silent.Addr().String(), nil)
	expect.OK(t, err)
	defer func() { expect.OK(t, e.Close()) }()
	s, err := sema.New(e, "x", 1, &sema.Options{Lease: time.Hour})
	expect.OK(t, err)
	if _, err := s.Acquire(context.Background()); !errors.Is(err, sema.ErrEngine) {
		t.Error(err)
	}
	closed := make(chan error, 1)
	go func() { closed <- s.Close() }()
	select {
	case err := <-closed:
		expect.OK(t, err)
	case <-expect.Within(t).Done():
		t.Fatal("Close waits for the lease")
	}
}
