package client

import (
	"slices"
	"testing"
	"time"

	"sema/engine"
	"sema/internal/protocol"
)

// An engine grants to all who came before an ask before it looks at the next one. So a call has its
// releases first, and then its asks in the order in which their callers came.
func TestAsksOfACallAreInOrder(t *testing.T) {
	var f flight
	add := func(kind protocol.Kind, number uint64, waited time.Duration) {
		f.requests = append(f.requests, protocol.Request{Kind: kind, ID: engine.ID{Number: number}, Waited: waited})
		f.items = append(f.items, item{claim: &claim{id: engine.ID{Number: number}}})
		if kind == protocol.Ask {
			f.asks++
		}
	}
	add(protocol.Ask, 1, 62*time.Millisecond) // tickets that serve other callers now
	add(protocol.Ask, 2, 20*time.Millisecond)
	add(protocol.Release, 3, 0)
	add(protocol.Renew, 4, 0)
	add(protocol.Ask, 5, 65*time.Millisecond) // a caller that had no ticket
	add(protocol.Ask, 6, 20*time.Millisecond)
	f.inOrder()
	var order []uint64
	for i, r := range f.requests {
		order = append(order, r.ID.Number)
		if f.items[i].claim.id != r.ID {
			t.Errorf("request %v is about %v", r.ID, f.items[i].claim.id)
		}
	}
	if want := []uint64{3, 4, 5, 1, 2, 6}; !slices.Equal(order, want) {
		t.Errorf("%v, want %v", order, want)
	}
}
