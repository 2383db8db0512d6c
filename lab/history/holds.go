package history

import (
	"fmt"
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

// Holds are what many clients did to one semaphore.
type Holds struct {
	mu     sync.Mutex
	holds  int
	events []Event
}

// Now is the time for a Hold.
func (h *Holds) Now() int64 { return time.Now().UnixNano() }

// Add records a hold.
func (h *Holds) Add(hold Hold) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.holds++
	note := func(e Event) {
		e.Op = int64(h.holds)
		h.events = append(h.events, e)
	}
	note(Event{At: hold.Call, Kind: Call, Weight: hold.Weight})
	if hold.Joined != 0 && !hold.Faulty {
		note(Event{At: hold.Joined, Kind: Queued})
	}
	got := Event{At: hold.Return, Kind: Got, Permit: hold.ID, Token: hold.Token, Slot: hold.Slot + 1}
	if until := hold.until(); until > hold.Return {
		got.Held = hold.Return
		note(got)
		note(Event{At: until - 1, Kind: Held, Held: until - 1})
	} else {
		note(got)
	}
}

// Len is how many holds were recorded.
func (h *Holds) Len() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.holds
}

// Check looks for a broken promise: more held at once than the limit, an order
// of grants that is not that of arrival, a token that does not grow, a slot
// held twice. slack is how much later than another a hold may be granted, or
// seem so by its token, that was settled before the other's call: permits pass on
// within a process by its own clock. For successful acquisitions, comparing certain holds with the
// limit at every instant finds exactly the histories that no correct semaphore
// can have.
func (h *Holds) Check(limit int, slack time.Duration) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	breaches := Judge(&Round{
		Semaphores: []Semaphore{{Limit: limit, Ordered: true, Late: slack}},
		Events:     h.events,
	})
	if len(breaches) == 0 {
		return nil
	}
	return fmt.Errorf("%s: %s", breaches[0].Promise, breaches[0].Text)
}
