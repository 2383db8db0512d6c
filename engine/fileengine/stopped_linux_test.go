package fileengine

import (
	"os"
	"testing"
	"time"

	"sema/internal/fixture/child"
	"sema/internal/fixture/expect"
)

// The head of the queue watches over the holder, and each other waiter over the
// one in front of it. So a head that stands still does not see the holder die, and
// nobody sees that it does not: those behind it wait until it goes on, or until
// they look themselves, every two minutes. SEMA_LOOK=1 waits for that.
func TestHolderDiesWhileTheHeadStandsStill(t *testing.T) {
	dir := t.TempDir()
	first := start(t, dir, 1)
	first.granted()
	head := process{child.Run(t, holderRole, holder{Dir: dir, Limit: 1})}
	head.Says("queued")
	next := process{child.Run(t, holderRole, holder{Dir: dir, Limit: 1})}
	next.Says("queued")

	expect.OK(t, head.Stop())
	began := monotonic()
	first.kill(t)
	if os.Getenv("SEMA_LOOK") != "" {
		said := len(next.Said())
		for end := time.Now().Add(5 * time.Minute); len(next.Said()) == said && time.Now().Before(end); {
			time.Sleep(100 * time.Millisecond)
		}
		t.Logf("with the head still stopped: the next one says %q after %v", next.Said()[said:], time.Duration(monotonic()-began).Round(100*time.Millisecond))
	}
	expect.OK(t, head.Continue())
	head.granted()
	at := next.granted()
	t.Logf("the holder died while the head stood still: the one behind it was served after %v", time.Duration(at-began).Round(time.Millisecond))
}
