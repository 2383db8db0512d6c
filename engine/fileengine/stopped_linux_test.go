package fileengine

import (
	"os"
	"syscall"
	"testing"
	"time"
)

// The head of the queue watches over the holder, and each other waiter over the
// one in front of it. So a head that stands still does not see the holder die, and
// nobody sees that it does not: those behind it wait until it goes on, or until
// they look themselves, every two minutes. SEMA_LOOK=1 waits for that.
func TestHolderDiesWhileTheHeadStandsStill(t *testing.T) {
	dir := t.TempDir()
	holder := start(t, dir, 1, -1)
	holder.says(t, "granted")
	head := start(t, dir, 1, 0)
	head.says(t, "queued")
	next := start(t, dir, 1, 0)
	next.says(t, "queued")

	must(t, head.cmd.Process.Signal(syscall.SIGSTOP))
	began := monotonic()
	holder.kill(t)
	if os.Getenv("SEMA_LOOK") != "" {
		for end := time.Now().Add(5 * time.Minute); len(next.lines) == 0 && time.Now().Before(end); {
			time.Sleep(100 * time.Millisecond)
		}
		t.Logf("with the head still stopped: %d lines from the next one after %v", len(next.lines), time.Duration(monotonic()-began).Round(100*time.Millisecond))
	}
	must(t, head.cmd.Process.Signal(syscall.SIGCONT))
	head.says(t, "granted")
	at := next.says(t, "granted")
	t.Logf("the holder died while the head stood still: the one behind it was served after %v", time.Duration(at-began).Round(time.Millisecond))
}
