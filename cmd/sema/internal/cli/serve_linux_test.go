package cli_test

import (
	"net/http"
	"net/url"
	"strings"
	"testing"

	"sema/internal/fixture/expect"
)

// The disk is full. With --audit-required the server refuses all changes that it
// cannot log. Without it, the log says that a line is missing.
func TestServeOnAFullDisk(t *testing.T) {
	for _, required := range []bool{false, true} {
		args := []string{"--url", fileURL(t), "--audit", "/dev/full"}
		if required {
			args = append(args, "--audit-required")
		}
		s := serve(t, args...)
		env := "SEMA_URL=" + s.url
		ok(t, env, "run", "-n", "1", "x", "--", "true")
		code, out := run(t, env, "limit", "x", "7")
		if required != (code == 69) || required != strings.Contains(out, "the audit log cannot be written, so nothing was changed") {
			t.Errorf("required %v: exit code %d: %s", required, code, out)
		}
		if required && strings.Count(out, "\n") != 1 {
			t.Errorf("want one line: %s", out)
		}
		put, err := http.NewRequest("PUT", s.url+"/v1/semaphores/x/limit", strings.NewReader(`{"limit":7}`))
		expect.OK(t, err)
		put.Header.Set("Content-Type", "application/json")
		w, err := s.browser("").Do(put)
		expect.OK(t, err)
		_ = w.Body.Close()
		w2, _ := s.post(s.browser(""), "/act", url.Values{"do": {"limit"}, "name": {"x"}, "limit": {"7"}})
		if required != (w.StatusCode == 503) || required != (w2.StatusCode == 503) {
			t.Errorf("required %v: %s, %s", required, w.Status, w2.Status)
		}
		if out := ok(t, env, "show", "x", "--json"); required == strings.Contains(out, `"limit": 7`) {
			t.Errorf("required %v: %s", required, out)
		}
		// A line for each of the three changes: none is tried again.
		if n := strings.Count(s.end(), "the audit log cannot be written"); n != 3 {
			t.Errorf("required %v: %d lines of the log say so, want 3", required, n)
		}
	}
}
