package ledger

import (
	"testing"
	"time"

	"sema/engine"
	"sema/internal/protocol"
)

// The effect of a stepped clock on leases, in the rules themselves. A step
// forward ends the leases with less time left. A step back prolongs them.
func TestASteppedClock(t *testing.T) {
	const lease, second = 10 * time.Second, int64(1_000_000)
	for _, c := range []struct {
		step int64 // of the clock, a second after the grant
		free bool  // for somebody else then
	}{{8, false}, {9, true}, {11, true}, {-5, false}} {
		l := &Ledger{}
		now := int64(1_800_000_000) * second
		ask := func(client string, number uint64) protocol.Reply {
			return l.Step(now, client, engine.Client{}, protocol.Call{Number: number, Requests: []protocol.Request{
				{Kind: protocol.Ask, ID: engine.ID{Client: client, Number: 1, Weight: 1}, Limit: 1, Lease: lease, Ticket: lease},
			}})
		}
		ask("a.1", 1)
		now += second
		now += c.step * second
		free := ask("b.1", 1).Answers[0].Status == protocol.Granted
		t.Logf("the clock is stepped by %ds under a lease with 9s left: another is granted the permit: %v", c.step, free)
		if free != c.free {
			t.Errorf("want %v", c.free)
		}
		now += 9 * second // when the lease should have ended
		if c.step < 0 && ask("b.1", 2).Answers[0].Status == protocol.Granted {
			t.Error("the lease ended although the clock was stepped back")
		}
	}
}
