//go:build unix

package cli_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"sema/internal/fixture/expect"
)

// The time before the server was started anew can still be read, with the acts of operators
// by way of the API.
func TestServeKeepsAHistory(t *testing.T) {
	file := filepath.Join(t.TempDir(), "history")
	url := "file://" + t.TempDir()
	s := serve(t, "--url", url, "--history", "72h", "--history-file", file)
	env := "SEMA_URL=" + s.url
	permit := strings.TrimSpace(ok(t, env, "acquire", "--label", "nightly", "x"))
	page := func(wants ...string) {
		t.Helper()
		expect.Until(t, strings.Join(wants, ", "), func() bool {
			out := get(t, s.url+"/semaphore?name=x")
			for _, want := range wants {
				if !strings.Contains(out, want) {
					return false
				}
			}
			return true
		})
	}
	page("nightly", "goes on")
	ok(t, env, "limit", "x", "3")
	ok(t, env, "limit", "x", "--pool", "gpu=2")
	ok(t, env, "limit", "x", "4", "--pool", "gpu=0", "--caps", "2")
	ok(t, env, "release", "x", permit)
	page("nightly", "gave it back", "sets the limit to 3<", "sets pools gpu=2<", "sets the limit to 4, with caps 2 and pools gpu=0<")
	s.end()
	if info, err := os.Stat(file); err != nil || info.Size() == 0 {
		t.Errorf("%v %v", info, err)
	}
	s = serve(t, "--url", url, "--history", "72h", "--history-file", file)
	page("nightly", "gave it back", "sets the limit to 3")
	if code, out := run(t, "", "serve", "--listen", "127.0.0.1:0", "--url", url, "--history-file", file); code != 64 || !strings.Contains(out, "in use by another process") {
		t.Errorf("exit code %d: %s", code, out)
	}
	s.end()
}

func TestHistoriesThatCannotBe(t *testing.T) {
	ofProcesses(t)
	url := "file://" + t.TempDir()
	for _, c := range []struct{ args, want string }{
		{"--history 48h", "memory keeps 24h0m0s at the most. Try: --history-file FILE"},
		{"--history 1s", "want a minute or more"},
		{"--history -1h", "want a minute or more"},
		{"--history 99999h --history-file x", "want 10000h0m0s or less"},
		{"--history-file /", "historydb: /"},
	} {
		args := append([]string{"serve", "--listen", "127.0.0.1:0", "--url", url}, strings.Fields(c.args)...)
		if code, out := run(t, "", args...); code != 64 || !strings.Contains(out, c.want) {
			t.Errorf("%s: exit code %d: %s", c.args, code, out)
		}
	}
}
