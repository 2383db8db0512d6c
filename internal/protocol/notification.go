package protocol

import (
	"time"

	"sema/engine"
)

// Notification tells a client what a step of another client did to its tickets. It
// may be lost, late, doubled or out of order.
type Notification struct {
	Grants  []Grant
	Ask     bool          // ask again now for every ticket
	Renew   bool          // renew every permit now: an operator wants one back
	Recheck time.Duration // if above 0: ask again for one ticket after that long; see AtOnce
	Recall  bool          // an earlier Reply.Keep is over: another client waits, or nothing may be granted
	Closed  bool          // the engine was closed: nothing can be renewed or granted any more
}

// AtOnce is the Recheck of a step that left work for the next one. Any call of the
// client continues that work.
const AtOnce = time.Microsecond

// Merge adds another notification of the same client. Of two Rechecks the earlier
// counts: a client that asks too early is told the later one again, but one that asks
// too late leaves weight unused.
func (n *Notification) Merge(m Notification) {
	n.Grants = append(n.Grants, m.Grants...)
	n.Ask, n.Renew, n.Recall, n.Closed = n.Ask || m.Ask, n.Renew || m.Renew, n.Recall || m.Recall, n.Closed || m.Closed
	if n.Recheck == 0 || m.Recheck > 0 && m.Recheck < n.Recheck {
		n.Recheck = m.Recheck
	}
}

// Empty reports whether the notification tells nothing.
func (n *Notification) Empty() bool {
	return len(n.Grants) == 0 && !n.Ask && !n.Renew && n.Recheck == 0 && !n.Recall && !n.Closed
}

// Grant says that a ticket has become a permit.
type Grant struct {
	ID     engine.ID
	Token  int64
	Slot   int
	Ticket int64 // the life of the ticket that was granted

	// Unsure says that the engine may still forget the grant: the permit is
	// renewed before it is given to a caller.
	Unsure bool

	// Until is when the permit's first lease ends, on the monotonic clock of
	// this process. Zero: it ends with the ticket.
	Until time.Time
}
