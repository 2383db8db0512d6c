package simulate

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"sema/engine"
	"sema/internal/ledger"
	"sema/internal/protocol"
)

// sharing is a random world of clients that ask for keys, with rules that change.
type sharing struct {
	t      *testing.T
	rng    *rand.Rand
	l      *book
	now    int64
	calls  uint64
	names  []string
	number uint64
	live   []engine.ID          // what was asked for, and not released
	of     map[engine.ID]string // whose it is
	weight int                  // the largest

	allowed map[string]int // the most that a key may hold: its cap, or what a smaller one found
	judge   judge
}

func newSharing(t *testing.T, seed uint64) *sharing {
	rng := rand.New(rand.NewPCG(seed, 7))
	w := &sharing{
		t: t, rng: rng, l: newBook(&ledger.Ledger{Watched: true}), now: 1_800_000_000_000_000, of: map[engine.ID]string{}, weight: 1,
		allowed: map[string]int{},
	}
	for i := range 2 + rng.IntN(6) {
		w.names = append(w.names, fmt.Sprintf("k%d", i))
	}
	if rng.IntN(3) == 0 {
		w.names = append(w.names, "")
	}
	if rng.IntN(2) == 0 {
		w.weight = 3
	}
	return w
}

func (w *sharing) pick() string { return w.names[w.rng.IntN(len(w.names))] }

// request draws what somebody does.
func (w *sharing) request(limit, perKey int) protocol.Request {
	switch n := w.rng.IntN(20); {
	case n < 2 && len(w.live) > 0: // again, and under another key, which changes nothing
		id, key := w.live[w.rng.IntN(len(w.live))], w.pick()
		if w.l.entry(id) == nil {
			key = w.of[id]
		}
		return protocol.Request{Kind: protocol.Ask, ID: id, Key: key, Limit: limit, Caps: engine.Caps{perKey}, Lease: time.Minute, Ticket: time.Minute, Wait: true, Again: true}
	case n < 11 || len(w.live) == 0:
		w.number++
		key := w.pick()
		id := engine.ID{Client: "c" + key, Number: w.number, Weight: 1 + w.rng.IntN(w.weight)}
		w.live = append(w.live, id)
		w.of[id] = key
		return protocol.Request{
			Kind: protocol.Ask, ID: id, Key: key, Limit: limit, Caps: engine.Caps{perKey}, Lease: time.Minute, Ticket: time.Minute,
			Wait: w.rng.IntN(8) > 0, Waited: time.Duration(w.rng.IntN(3)) * time.Millisecond,
		}
	case n < 18:
		i := w.rng.IntN(len(w.live))
		id := w.live[i]
		w.live = slices.Delete(w.live, i, i+1)
		return protocol.Request{Kind: protocol.Release, ID: id}
	case n == 18:
		kind := protocol.SetKey
		if w.rng.IntN(3) == 0 {
			kind = protocol.UnsetKey
		}
		return protocol.Request{Kind: kind, Key: w.pick(), Cap: w.rng.IntN(5), Share: []int{0, 50, 100, 300, 1000}[w.rng.IntN(5)]}
	default:
		return protocol.Request{Kind: protocol.SetLimit, Limit: w.rng.IntN(7), Caps: engine.Caps{w.rng.IntN(4) - 1}}
	}
}

// step carries out requests, and looks at what that does.
func (w *sharing) step(requests ...protocol.Request) {
	w.t.Helper()
	w.calls++
	w.now += w.rng.Int64N(1000)
	had := map[engine.ID]bool{}
	for _, h := range w.l.Holders {
		had[h.ID] = true
	}
	before := w.l.view
	reply, news := w.l.Step(w.now, "c", protocol.Call{Number: w.calls, Requests: requests})
	ask := reply.Notification.Ask || reply.Notification.Recheck == protocol.AtOnce
	grants := slices.Clone(reply.Notification.Grants)
	for _, n := range news {
		grants = append(grants, n.Grants...)
		ask = ask || n.Ask || n.Recheck == protocol.AtOnce
	}
	for i, a := range reply.Answers {
		if id := requests[i].ID; a.Status == protocol.Granted && !had[id] {
			grants = append(grants, protocol.Grant{ID: id, Token: a.Token})
		}
	}
	if ask && w.weight == 1 {
		w.t.Fatal("somebody is told to ask again")
	}
	slices.SortFunc(grants, func(a, b protocol.Grant) int { return cmp.Compare(a.Token, b.Token) })
	if err := w.judge.step(before, w.l.view, requests, grants, ask); err != nil {
		w.t.Fatal(err)
	}
	w.sums()
	w.conserves(ask)
}

// sums looks at what keys hold, beside their caps.
func (w *sharing) sums() {
	w.t.Helper()
	if err := cmp.Or(w.l.sound(), w.l.Audit()); err != nil {
		w.t.Fatal(err)
	}
	for _, h := range w.l.Holders {
		if h.Key != w.of[h.ID] {
			w.t.Fatalf("%v was asked for by %q, and is %q's", h.ID, w.of[h.ID], h.Key)
		}
	}
	for _, name := range w.names {
		held, cap := w.l.KeyLoad(name)
		most := max(cap, min(w.allowed[name], held))
		if held > most {
			w.t.Fatalf("key %q holds %d, allowed %d", name, held, most)
		}
		w.allowed[name] = most
	}
}

// conserves looks whether free weight lies beside a key in turn.
func (w *sharing) conserves(told bool) {
	w.t.Helper()
	if next, ok := w.l.Next(); ok && !told && next.Weight <= w.l.Limit-w.l.used {
		w.t.Fatalf("%v waits, and %d of %d is held", next, w.l.used, w.l.Limit)
	}
}

// What holds among keys: the caps, the sums, the order and its bound, and that no
// free weight lies beside a key in turn.
func TestShares(t *testing.T) {
	for seed := range uint64(400) {
		w := newSharing(t, seed)
		limit, perKey := 1+w.rng.IntN(6), w.rng.IntN(4)
		w.step(protocol.Request{Kind: protocol.SetLimit, Limit: limit, Caps: engine.Caps{max(1}, perKey)})
		for range 300 {
			w.step(w.request(limit, perKey))
			if t.Failed() {
				t.Fatalf("seed %d", seed)
			}
		}
		for len(w.live) > 0 {
			w.step(protocol.Request{Kind: protocol.Release, ID: w.live[0]})
			w.live = w.live[1:]
		}
		for _, name := range w.names {
			w.step(protocol.Request{Kind: protocol.UnsetKey, Key: name})
		}
		if left := w.l.ledger.State(w.now).Keys; len(left) > 0 {
			t.Fatalf("seed %d: keys are left: %+v", seed, left)
		}
	}
}
