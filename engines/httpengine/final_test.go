package httpengine_test

import (
	"context"
	"errors"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"sema"
	"sema/engine"
	"sema/engines/httpengine"
	"sema/internal/fixture/expect"
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
			s, err := sema.New(e, "x", 1, &sema.Options{Patient: true})
			expect.OK(t, err)
			t.Cleanup(func() { _ = s.Close() })
			_, err = s.Acquire(expect.Within(t))
			var failure *engine.Error
			if !errors.As(err, &failure) || errors.Is(err, context.DeadlineExceeded) || failure.Temporary || !strings.Contains(failure.Hint, c.hint) {
				t.Errorf("%v: %+v", err, failure)
			}
			t.Log(err)
		})
	}
}
