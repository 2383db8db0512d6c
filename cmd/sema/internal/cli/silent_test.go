package cli_test

import (
	"errors"
	"net"
	"os/exec"
	"strings"
	"testing"
	"time"

	"sema/internal/fixture/expect"
)

// A server takes connections and never says a word, as one does that is stopped, or behind a
// firewall. A wait for a permit ends when it is over: not a lease later, when
// nothing can be owed to the server any more.
func TestAWaitForASilentServerEndsInTime(t *testing.T) {
	ofProcesses(t)
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	expect.OK(t, err)
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			t.Cleanup(func() { _ = c.Close() })
		}
	}()
	began := time.Now()
	out, err := exec.Command("sema", "run", "--url", "redis://"+l.Addr().String(), "--lease", "10m", "--wait", "500ms", "x", "--", "true").CombinedOutput()
	var ended *exec.ExitError
	if !errors.As(err, &ended) || ended.ExitCode() != 69 || !strings.HasPrefix(string(out), `sema: acquire "x": `) {
		t.Errorf("%v: %s, want 69 and what the wait met", err, out)
	}
	if took := time.Since(began); took > time.Minute {
		t.Errorf("it took %v", took)
	}
}
