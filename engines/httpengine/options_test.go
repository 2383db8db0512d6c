package httpengine_test

import (
	"errors"
	"strings"
	"testing"

	"sema/engine"
	"sema/engines/httpengine"
)

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
