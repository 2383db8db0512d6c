package cli_test

import (
	"errors"
	"net"
	"os/exec"
	"strings"
	"testing"
	"time"

	"sema/internal/fixture/expect"
	"sema/internal/fixture/redistest"
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

// The bound is for the queue, and not for the way to the engine: what is free is taken.
func TestAWaitShorterThanTheWayToTheEngine(t *testing.T) {
	ofProcesses(t)
	t.Parallel()
	proxy := redistest.StartProxy(t, redistest.Start(t).Addr())
	proxy.Change(func(trouble *redistest.Trouble) { trouble.Latency = 5 * time.Millisecond })
	url := "redis://" + proxy.Addr()
	for _, env := range []string{"NONE=", "SEMA_HELD=outer"} { // within another permit it looks first whether the wait would be in vain
		for _, wait := range []string{"0.001", "0.000000001"} {
			ok(t, env, "run", "--url", url, "--wait", wait, "free", "--", "true")
			permit := ok(t, env, "acquire", "--url", url, "--wait", wait, "free")
			if code, out := run(t, env, "run", "--url", url, "--wait", wait, "free", "--", "true"); code != 75 {
				t.Errorf("exit code %d: %s", code, out)
			}
			ok(t, env, "release", "--url", url, "free", strings.TrimSpace(permit))
		}
	}
}
