// Package why says what stands in front of a waiter, for every front end in the
// same words.
package why

import (
	"fmt"

	"sema/engine"
)

// Of says in a few words what stands in front of a permit of a weight with so
// many tickets before it in the queue of a semaphore.
func Of(st engine.State, weight, before int) string {
	free := max(0, st.Limit-st.Used)
	room := fmt.Sprintf("%d of %d free", free, st.Limit)
	others := "1 other"
	if before != 1 {
		others = fmt.Sprintf("%d others", before)
	}
	switch {
	case weight > st.Limit:
		return fmt.Sprintf("never: weight %d is above the limit %d", weight, st.Limit)
	case st.Paused:
		return "paused by an operator"
	case before > 0 && free > 0 && st.Waiters[0].Weight > free:
		return fmt.Sprintf("behind %s; the first wants %d, %s", others, st.Waiters[0].Weight, room)
	case before > 0:
		return "behind " + others
	case st.Used > st.Limit:
		return fmt.Sprintf("next in line; %d held, more than the limit %d", st.Used, st.Limit)
	case weight > free && free > 0:
		return fmt.Sprintf("next in line; wants %d, %s", weight, room)
	case weight > free:
		return "next in line; " + room
	}
	return "served now"
}
