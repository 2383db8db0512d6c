package simulate

import (
	"cmp"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"sema/engine"
	"sema/internal/fixture/expect"
	"sema/internal/ledger"
	"sema/internal/protocol"
)

var worlds = flag.Uint64("worlds", 400, "in how many random worlds the order among keys and of pools is compared with the oracle's")

// sharing is a random world of clients that ask for keys, with rules that change.
type sharing struct {
	t      *testing.T
	rng    *rand.Rand
	l      *book
	now    int64
	calls  uint64
	names  []string // of callers
	paths  []string // the same, and those above them
	number uint64
	live   []engine.ID                   // what was asked for, and not released
	of     map[engine.ID]protocol.Target // whose it is
	weight int                           // the largest
	brief  bool                          // some leases and tickets end
	other  bool                          // the caps of all keys have changed

	pools   []string       // of which some callers take some
	used    map[string]int // the most that may be used of each: how much there is, or what a smaller amount found
	allowed map[string]int // the most that a key may hold: its cap, or what a smaller one found
	judge   judge
	oracle  *oracle
	grants  int
}

func newSharing(t *testing.T, seed uint64) *sharing {
	rng := rand.New(rand.NewPCG(seed, 7))
	w := &sharing{
		t: t, rng: rng, l: newBook(&ledger.Ledger{Watched: true}), now: 1_800_000_000_000_000, of: map[engine.ID]protocol.Target{}, weight: 1,
		allowed: map[string]int{}, used: map[string]int{}, oracle: newOracle(), brief: rng.IntN(3) == 0,
	}
	deep, fan := rng.IntN(4) > 0, 1+rng.IntN(3)
	for i := range 2 + rng.IntN(6) {
		name := fmt.Sprintf("k%d", i)
		if deep {
			name = fmt.Sprintf("k%d", rng.IntN(fan))
			for range rng.IntN(engine.MaxDepth) {
				name += engine.KeySeparator + string(rune('a'+rng.IntN(fan)))
			}
		}
		w.names = append(w.names, name)
	}
	if rng.IntN(3) == 0 {
		w.names = append(w.names, "")
	}
	for _, name := range w.names {
		w.paths = append(w.paths, path(engine.Key(name))...)
	}
	if rng.IntN(2) == 0 {
		w.weight = 3
	}
	if rand.New(rand.NewPCG(seed, 0x706f)).IntN(2) == 0 { // the others stay as they are
		w.pools = []string{"db", "gpu", "licence"}
	}
	return w
}

// target draws whose permit somebody wants, and what it takes of pools.
func (w *sharing) target() protocol.Target {
	t := protocol.Target{Key: engine.Key(w.pick(w.names))}
	if len(w.pools) == 0 || w.rng.IntN(3) == 0 {
		return t
	}
	t.Takes = w.amounts(1)
	return t
}

// amounts draws amounts of one to three pools.
func (w *sharing) amounts(least int) engine.Pools {
	amounts := map[string]int{}
	for range 1 + w.rng.IntN(3) {
		amounts[w.pick(w.pools)] = least + w.rng.IntN(4-least)
	}
	pools, err := engine.NewPools(amounts, least)
	expect.OK(w.t, err)
	return pools
}

func (w *sharing) pick(of []string) string { return of[w.rng.IntN(len(of))] }

// caps draws other caps of all keys.
func (w *sharing) caps() (caps engine.Caps) {
	for i := range caps {
		if w.rng.IntN(2) == 0 {
			continue // as it is
		}
		caps[i] = w.rng.IntN(5) - 1
		w.other = true
	}
	return caps
}

// life draws how long a lease or a ticket lasts.
func (w *sharing) life() time.Duration {
	if w.brief && w.rng.IntN(3) == 0 {
		return time.Duration(1+w.rng.IntN(20)) * time.Millisecond
	}
	return time.Minute
}

// request draws what somebody does.
func (w *sharing) request(limit int, caps engine.Caps) protocol.Request {
	ask := protocol.Request{Kind: protocol.Ask, Limit: limit, Caps: caps, Lease: w.life(), Ticket: w.life(), Wait: true}
	switch n := w.rng.IntN(40); {
	case n < 4 && len(w.live) > 0: // again, and under another key, which changes nothing
		ask.ID, ask.Again = w.live[w.rng.IntN(len(w.live))], true
		ask.Target = w.target()
		if e := w.l.entry(ask.ID); e == nil || w.brief { // or else it may be over before it is asked for
			ask.Target = w.of[ask.ID]
		}
		if w.rng.IntN(4) == 0 { // for another caller
			ask.Anew, ask.Waited = true, time.Duration(w.rng.IntN(3))*time.Millisecond
		}
		return ask
	case n < 22 || len(w.live) == 0:
		w.number++
		ask.Target = w.target()
		ask.ID = engine.ID{Client: "c", Number: w.number, Weight: 1 + w.rng.IntN(w.weight)}
		w.live = append(w.live, ask.ID)
		w.of[ask.ID] = ask.Target
		ask.Wait, ask.Unfair, ask.Waited = w.rng.IntN(8) > 0, w.rng.IntN(30) == 0, time.Duration(w.rng.IntN(3))*time.Millisecond
		return ask
	case n < 34:
		i := w.rng.IntN(len(w.live))
		id := w.live[i]
		w.live = slices.Delete(w.live, i, i+1)
		return protocol.Request{Kind: protocol.Release, ID: id}
	case n < 36:
		kind := protocol.SetKey
		if w.rng.IntN(3) == 0 {
			kind = protocol.UnsetKey
		}
		return protocol.Request{Kind: kind, Target: protocol.Target{Key: engine.Key(w.pick(w.paths))}, Cap: w.rng.IntN(6), Share: []int{0, 50, 100, 300, 1000}[w.rng.IntN(5)]}
	case n < 37 && w.rng.IntN(4) == 0:
		return protocol.Request{Kind: protocol.Pause}
	case n < 37 && w.rng.IntN(4) == 0:
		return protocol.Request{Kind: protocol.Cooldown, Lease: w.life()}
	case n < 37:
		return protocol.Request{Kind: protocol.Unpause}
	default:
		r := protocol.Request{Kind: protocol.SetLimit, Limit: w.rng.IntN(9), Caps: w.caps()}
		if len(w.pools) > 0 && w.rng.IntN(2) == 0 {
			r = protocol.Request{Kind: protocol.SetLimit, Pools: w.amounts(0)}
		}
		return r
	}
}

// step carries out a request, and looks at what that does.
func (w *sharing) step(r protocol.Request) {
	w.t.Helper()
	w.calls++
	w.now += w.rng.Int64N(1000)
	w.l.Expire(w.now) // the judge expects it
	had := map[engine.ID]bool{}
	for _, h := range w.l.Holders {
		had[h.ID] = true
	}
	before, requests := w.l.view, []protocol.Request{r}
	reply, news := w.l.Step(w.now, "c", protocol.Call{Number: w.calls, Requests: requests})
	ask := reply.Notification.Ask || reply.Notification.Recheck == protocol.AtOnce
	grants := slices.Clone(reply.Notification.Grants)
	for _, n := range news {
		grants = append(grants, n.Grants...)
		ask = ask || n.Ask || n.Recheck == protocol.AtOnce
	}
	if a := reply.Answers[0]; a.Status == protocol.Granted && !had[r.ID] {
		grants = append(grants, protocol.Grant{ID: r.ID, Token: a.Token})
	}
	if ask && w.weight == 1 && len(w.pools) == 0 {
		w.t.Fatal("somebody is told to ask again")
	}
	slices.SortFunc(grants, func(a, b protocol.Grant) int { return cmp.Compare(a.Token, b.Token) })
	w.agrees(&r, reply.Answers[0].Status, grants)
	expect.OK(w.t, w.judge.step(w.now, before, w.l.view, requests, grants, ask))
	if room := w.l.Room(); reply.Room != room {
		w.t.Fatalf("room beside those that wait: told %v, and it is %v", reply.Room, room)
	}
	w.sums()
	w.conserves(ask)
	w.grants += len(grants)
}

// agrees compares a step with the oracle's.
func (w *sharing) agrees(r *protocol.Request, is protocol.Status, grants []protocol.Grant) {
	w.t.Helper()
	want, due := w.oracle.step(w.now, r)
	var got []engine.ID
	for _, g := range grants {
		got = append(got, g.ID)
	}
	if is != want || !slices.Equal(got, due) {
		w.t.Fatalf("step %d, %+v: answer %v, granted %v; the oracle says %v, %v", w.calls, *r, is, got, want, due)
	}
	same := func(what string, list []ledger.Recorded, want []*wish) {
		w.t.Helper()
		if len(list) != len(want) {
			w.t.Fatalf("step %d, %+v: %d %s, and the oracle has %d", w.calls, *r, len(list), what, len(want))
		}
		for _, o := range want {
			if recorded(list, o.id) == nil {
				w.t.Fatalf("step %d, %+v: %v is not among the %s", w.calls, *r, o.id, what)
			}
		}
	}
	same("permits", w.l.Holders, w.oracle.held)
	same("tickets", w.l.Waiters, w.oracle.waiting)
}

// sums looks at what keys hold, beside their caps.
func (w *sharing) sums() {
	w.t.Helper()
	expect.OK(w.t, cmp.Or(w.l.sound(), w.l.Audit()))
	for _, h := range w.l.Holders {
		if h.Target != w.of[h.ID] {
			w.t.Fatalf("%v was asked for by %v, and is of %v", h.ID, w.of[h.ID], h.Target)
		}
	}
	for _, name := range w.paths {
		held, cap := w.l.KeyLoad(name)
		most := max(cap, min(w.allowed[name], held))
		if held > most {
			w.t.Fatalf("key %q holds %d, allowed %d", name, held, most)
		}
		w.allowed[name] = most
	}
	for _, t := range w.l.tenants {
		for _, n := range t.classes {
			if leaf := w.l.runnable(n); !w.other && leaf != nil && isBlocker(t, leaf) {
				w.t.Fatalf("key %q is runnable, and holds %d of %d", t.Name, t.held, t.most)
			}
		}
	}
	for name, used := range w.l.taken {
		most := max(w.l.Pools.Of(name), min(w.used[name], used))
		if used > most {
			w.t.Fatalf("%d of pool %q are used, allowed %d", used, name, most)
		}
		w.used[name] = most
	}
}

// conserves looks whether free weight lies beside a runnable key. A full key is blocked by its cap: sums has
// seen that it blocks its first ticket.
func (w *sharing) conserves(told bool) {
	w.t.Helper()
	if next, ok := w.l.Ready(); ok && !told && !w.l.Paused && w.l.Cooldown <= w.now {
		w.t.Fatalf("%v waits for nothing, and %d of %d is held", next, w.l.used, w.l.Limit)
	}
}

// What holds among keys: the caps, the sums, the order and its bound, and that no free weight lies
// beside a runnable key. The answers and grants of each step are those of the oracle.
func TestShares(t *testing.T) {
	grants := 0
	for seed := range *worlds {
		grants += newSharing(t, seed).run(seed)
	}
	t.Logf("%d worlds, %d grants", *worlds, grants)
}

// run plays a world to its end, when nobody has or wants anything, and returns how much was granted.
func (w *sharing) run(seed uint64) (grants int) {
	w.t.Helper()
	defer func() {
		if w.t.Failed() {
			w.t.Logf("seed %d: keys %s", seed, strings.ReplaceAll(fmt.Sprintf("%q", w.names), `\x01`, "/"))
		}
	}()
	limit, caps := 1+w.rng.IntN(8), engine.Caps{w.rng.IntN(7), w.rng.IntN(5), w.rng.IntN(4)}
	open := protocol.Request{Kind: protocol.SetLimit, Limit: limit, Caps: caps}
	if len(w.pools) > 0 {
		open.Pools = "db=4,gpu=2,licence=1"
	}
	w.step(open)
	for range 300 {
		w.step(w.request(limit, caps))
	}
	w.step(protocol.Request{Kind: protocol.Unpause})
	for _, id := range w.live {
		w.step(protocol.Request{Kind: protocol.Release, ID: id})
	}
	for _, name := range w.paths {
		w.step(protocol.Request{Kind: protocol.UnsetKey, Target: protocol.Target{Key: engine.Key(name)}})
	}
	left := w.l.ledger.State(w.now)
	if len(left.Keys) > 0 || len(w.l.Keys) > 0 {
		w.t.Fatalf("keys are left: %+v, %+v", left.Keys, w.l.Keys)
	}
	for _, p := range left.Pools {
		if p.Used > 0 || p.Waiting > 0 || p.Limit != w.l.Pools.Of(p.Pool) {
			w.t.Fatalf("of a pool is left: %+v", p)
		}
	}
	return w.grants
}
