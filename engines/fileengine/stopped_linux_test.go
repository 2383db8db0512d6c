package fileengine

import (
	"os"
	"testing"
	"time"

	"sema/internal/fixture/child"
	"sema/internal/fixture/expect"
)

// The head of the queue watches the holder, and each other waiter watches the one before
// it. A stopped head does not notice the holder's death, and no other process notices
// that. The waiters behind it wait until it continues, or until their own check every two
// minutes. SEMA_LOOK=1 waits for that check.
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
