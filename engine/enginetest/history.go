package enginetest

import (
	"fmt"
	"sort"
	"sync"
	"time"
)

// Hold is one permit as its holder saw it. Times are nanoseconds of this
// host's clock, so that several processes can write one history.
type Hold struct {
	ID      string `json:"id"`
	Weight  int    `json:"weight"`
	Token   int64  `json:"token"`
	Slot    int    `json:"slot"`             // -1: none
	Call    int64  `json:"call"`             // acquire was called
	Joined  int64  `json:"joined,omitempty"` // it was known to be in the queue; 0: it never was
	Return  int64  `json:"return"`           // acquire returned
	Release int64  `json:"release"`          // release was called, or the process killed; 0: not known
	Trusted int64  `json:"trusted"`          // the permit's last deadline
	Faulty  bool   `json:"faulty,omitempty"` // its process was stopped or killed: may have lost its place
}

// until is when the holder certainly held no more: before that it did.
func (h Hold) until() int64 {
	if h.Release != 0 && h.Release < h.Trusted {
		return h.Release
	}
	return h.Trusted
}

// History is what many clients did to one semaphore.
type History struct {
	mu    sync.Mutex
	holds []Hold
}

// Now is the time for a Hold.
func (h *History) Now() int64 { return time.Now().UnixNano() }

// Add records a hold.
func (h *History) Add(hold Hold) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.holds = append(h.holds, hold)
}

// Len is how many holds were recorded.
func (h *History) Len() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.holds)
}

// Check looks for a broken promise: more held at once than the limit, an order
// of grants that is not that of arrival, a token that does not grow, a slot
// held twice. slack is how much later than another a hold may be granted, or
// seem so by its token, that was settled before the other's call: permits pass on
// within a process by its own clock. For successful acquisitions, comparing certain holds with the
// limit at every instant finds exactly the histories that no correct semaphore
// can have.
func (h *History) Check(limit int, slack time.Duration) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, check := range []func([]Hold) error{
		func(hs []Hold) error { return checkLimit(hs, limit) },
		func(hs []Hold) error { return checkTokens(hs, slack) },
		func(hs []Hold) error { return checkOrder(hs, slack) },
		checkSlots,
	} {
		if err := check(h.holds); err != nil {
			return err
		}
	}
	return nil
}

func checkLimit(holds []Hold, limit int) error {
	type edge struct {
		at    int64
		delta int
	}
	var edges []edge
	for _, h := range holds {
		if h.until() > h.Return {
			edges = append(edges, edge{h.Return, h.Weight}, edge{h.until(), -h.Weight})
		}
	}
	sort.Slice(edges, func(i, j int) bool {
		return edges[i].at < edges[j].at || edges[i].at == edges[j].at && edges[i].delta < edges[j].delta
	})
	held := 0
	for _, e := range edges {
		if held += e.delta; held > limit {
			return fmt.Errorf("limit: %d held at %d, limit %d", held, e.at, limit)
		}
	}
	return nil
}

func checkTokens(holds []Hold, slack time.Duration) error {
	type key struct {
		slot  int
		token int64
	}
	seen := map[key]string{}
	for _, h := range holds {
		k := key{h.Slot, h.Token}
		if slack == 0 {
			k.slot = -1
		} else if h.Slot < 0 {
			continue // of two that are held at once
		}
		if other, twice := seen[k]; twice {
			return fmt.Errorf("token: %d was given to %s and %s", h.Token, other, h.ID)
		}
		seen[k] = h.ID
	}
	return before(holds, "token", slack, func(h Hold) (int64, bool) { return h.Return, true })
}

// checkOrder wants whoever was in the queue, or had been served, before another
// asked, to have the smaller token.
func checkOrder(holds []Hold, slack time.Duration) error {
	return before(holds, "order", slack, func(h Hold) (int64, bool) {
		if h.Joined != 0 {
			return h.Joined, !h.Faulty
		}
		return h.Return, !h.Faulty
	})
}

// before checks that a hold which was settled before another's call has the
// smaller token.
func before(holds []Hold, what string, slack time.Duration, settled func(Hold) (at int64, counts bool)) error {
	byCall, bySettled := make([]Hold, len(holds)), []Hold(nil)
	copy(byCall, holds)
	sort.Slice(byCall, func(i, j int) bool { return byCall[i].Call < byCall[j].Call })
	for _, h := range holds {
		if _, counts := settled(h); counts {
			bySettled = append(bySettled, h)
		}
	}
	at := func(h Hold) int64 { t, _ := settled(h); return t }
	sort.Slice(bySettled, func(i, j int) bool { return at(bySettled[i]) < at(bySettled[j]) })
	i := 0
	var last Hold
	for _, h := range byCall {
		for ; i < len(bySettled) && at(bySettled[i]) < h.Call; i++ {
			if bySettled[i].Token > last.Token {
				last = bySettled[i]
			}
		}
		if h.Token+slack.Microseconds() <= last.Token {
			return fmt.Errorf("%s: %s asked after %s was settled, and has token %d, not above %d", what, h.ID, last.ID, h.Token, last.Token)

		}
	}
	return nil
}

func checkSlots(holds []Hold) error {
	bySlot := map[int][]Hold{}
	for _, h := range holds {
		if h.Slot >= 0 {
			bySlot[h.Slot] = append(bySlot[h.Slot], h)
		}
	}
	for slot, hs := range bySlot {
		for i := range hs {
			hs[i].Weight = 1
		}
		if err := checkLimit(hs, 1); err != nil {
			return fmt.Errorf("slot %d: %w", slot, err)
		}
		sort.Slice(hs, func(i, j int) bool { return hs[i].Return < hs[j].Return })
		for i := 1; i < len(hs); i++ {
			// Only holds that do not overlap are surely in this order.
			if hs[i-1].until() <= hs[i].Return && hs[i-1].Return < hs[i].Call && hs[i].Token <= hs[i-1].Token {
				return fmt.Errorf("slot %d: token %d after %d", slot, hs[i].Token, hs[i-1].Token)
			}
		}
	}
	return nil
}
