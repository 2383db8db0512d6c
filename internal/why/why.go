// Package why says what stands in front of somebody who waits, for every
// front end in the same terms.
package why

import "sema/engine"

// Cause is why a permit is not granted.
type Cause uint8

// The causes. The first that applies is the one.
const (
	Nothing  Cause = iota // it would be granted, or is about to be
	TooHeavy              // its weight is above the limit: it can never be granted
	Paused                // an operator stopped all grants
	Head                  // tickets before it, and less is free than the first of them wants
	Behind                // tickets before it, and nothing is free, or they are being served now
	Over                  // more is held than the limit, which was lowered since
	Needs                 // it is the next, and wants more than is free
	Full                  // it is the next, and nothing is free
)

// Why is what stands in front of one permit.
type Why struct {
	Cause  Cause
	Weight int // what it wants
	Before int // tickets before it
	First  int // weight of the first of them; 0: none
	Free   int // weight that is free
}

// Of says what stands in front of a permit of a weight with so many tickets
// before it in the queue of a semaphore.
func Of(st engine.State, weight, before int) Why {
	w := Why{Weight: weight, Before: before, Free: max(0, st.Limit-st.Used)}
	if before > 0 {
		w.First = st.Waiters[0].Weight
	}
	switch {
	case weight > st.Limit:
		w.Cause = TooHeavy
	case st.Paused:
		w.Cause = Paused
	case before > 0 && w.First > w.Free && w.Free > 0:
		w.Cause = Head
	case before > 0:
		w.Cause = Behind
	case st.Used > st.Limit:
		w.Cause = Over
	case weight > w.Free && w.Free > 0:
		w.Cause = Needs
	case weight > w.Free:
		w.Cause = Full
	}
	return w
}
