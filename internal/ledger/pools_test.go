package ledger

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"sema/engine"
	"sema/internal/protocol"
)

// bench is a ledger whose callers are all of one client.
type bench struct {
	Ledger
	now int64
}

func (b *bench) step(r protocol.Request) (is protocol.Status, grants []uint64) {
	b.now++
	reply := b.Step(b.now, "c", engine.Client{}, protocol.Call{Number: uint64(b.now), Requests: []protocol.Request{r}})
	for _, g := range reply.Notification.Grants {
		grants = append(grants, g.ID.Number)
	}
	return reply.Answers[0].Status, grants
}

func (b *bench) ask(number uint64, key engine.Key, takes engine.Pools, weight int) protocol.Status {
	is, _ := b.step(protocol.Request{
		Kind: protocol.Ask, ID: engine.ID{Client: "c", Number: number, Weight: weight}, Target: protocol.Target{Key: key, Takes: takes},
		Limit: 20, Lease: time.Minute, Ticket: time.Minute, Wait: true,
	})
	return is
}

// While weight of a key is kept free for a ticket, another key beside it is served. It is the cost of that one's
// ticket that counts for the key above both, not the cost of the first ticket when nothing is kept free.
func TestAKeyPaysForTheTicketThatWasServed(t *testing.T) {
	b := &bench{}
	b.step(protocol.Request{Kind: protocol.SetLimit, Limit: 20, Pools: "gpu=1"})
	b.step(protocol.Request{Kind: protocol.SetKey, Target: protocol.Target{Key: "p\x01k"}, Cap: 2})
	b.step(protocol.Request{Kind: protocol.SetKey, Target: protocol.Target{Key: "p"}, Share: 1000})
	b.step(protocol.Request{Kind: protocol.SetKey, Target: protocol.Target{Key: "q"}, Share: 1000})
	if is := b.ask(1, "x", "gpu=1", 1); is != protocol.Granted {
		t.Fatal(is)
	}
	b.step(protocol.Request{Kind: protocol.Pause})
	b.ask(2, "p\x01k", "gpu=1", 1) // keeps a weight of 1 free
	b.ask(3, "p\x01k", "", 2)      // and so lacks 1
	b.ask(4, "p\x01m", "", 3)
	b.ask(5, "q", "", 5)
	b.ask(6, "p\x01m", "", 2)
	if _, grants := b.step(protocol.Request{Kind: protocol.Unpause}); !slices.Equal(grants, []uint64{4, 5, 6}) {
		t.Errorf("granted %v", grants)
	}
}

// A set does not count any more once all its callers have died, though nobody has looked at their tickets.
func TestSetsOfTheDeadMakeRoom(t *testing.T) {
	b := &bench{}
	b.step(protocol.Request{Kind: protocol.SetLimit, Limit: 20, Pools: "a=1,b=1,c=1,d=1,e=1"})
	b.ask(1, "", "", 20)
	sets := []engine.Pools{}
	for bits := 1; bits <= engine.MaxPools+1; bits++ {
		takes := map[string]int{}
		for i, pool := range []string{"a", "b", "c", "d", "e"} {
			if bits>>i%2 == 1 {
				takes[pool] = 1
			}
		}
		set, _ := engine.NewPools(takes, 1)
		sets = append(sets, set)
	}
	for i, set := range sets {
		want := protocol.Queued
		if i == engine.MaxPools {
			want = protocol.TooMany
		}
		if is := b.ask(uint64(i+2), "", set, 1); is != want {
			t.Errorf("set %d: %v, want %v", i, is, want)
		}
		b.ask(uint64(i+50), "", sets[0], 1)
	}
	b.step(protocol.Request{Kind: protocol.Renew, ID: engine.ID{Client: "c", Number: 1, Weight: 20}, Lease: time.Hour})
	b.now += time.Minute.Microseconds() - 10
	b.ask(50, "", sets[0], 1) // one is alive
	b.now += 10
	if is := b.ask(90, "", sets[engine.MaxPools], 1); is != protocol.Queued {
		t.Error(is)
	}
	if !b.Waits(engine.ID{Client: "c", Number: 50, Weight: 1}) {
		t.Error("one that asks again does not wait")
	}
}

// A ticket above the cap of its key is dropped, whatever the key above that lacks.
func TestATicketAboveItsCapIsDroppedBelowAFullKey(t *testing.T) {
	b := &bench{}
	b.ask(1, "p\x01k", "", 3)
	b.step(protocol.Request{Kind: protocol.SetKey, Target: protocol.Target{Key: "p"}, Cap: 4})
	b.ask(2, "p\x01k", "", 2)
	b.step(protocol.Request{Kind: protocol.SetKey, Target: protocol.Target{Key: "p\x01k"}, Cap: 1})
	if b.Waits(engine.ID{Client: "c", Number: 2, Weight: 2}) {
		t.Error("it waits")
	}
}

// While weight of a key is kept free, the step looks at a key below it whose cap has become smaller. When nothing
// is kept free any more, the lanes of the upper key are back in turn.
func TestWhatIsKeptFreeSetsNobodyAsideForGood(t *testing.T) {
	b := &bench{}
	b.step(protocol.Request{Kind: protocol.SetLimit, Limit: 20, Pools: "gpu=1"})
	b.step(protocol.Request{Kind: protocol.SetKey, Target: protocol.Target{Key: "p"}, Cap: 4})
	b.step(protocol.Request{Kind: protocol.SetKey, Target: protocol.Target{Key: "p\x01z"}, Cap: 4})
	b.ask(1, "p\x01k", "", 1)
	b.ask(2, "p\x01z", "gpu=1", 1)
	b.step(protocol.Request{Kind: protocol.Pause})
	b.ask(3, "p\x01m", "gpu=1", 1) // keeps 1 of p free
	b.ask(4, "p\x01k", "", 2)
	b.ask(5, "p\x01z", "", 2)
	b.step(protocol.Request{Kind: protocol.SetLimit, Caps: engine.Caps{0, 2}}) // less is left of k than 4 wants
	b.step(protocol.Request{Kind: protocol.Unpause})
	for _, c := range b.keys.blocked {
		if !b.blocks(c.key, c.head().weight, 0) {
			t.Errorf("class %q is blocked, and its key holds %d of %d", c.text(), c.key.held, b.capOf(c.key))
		}
	}
}

// A class that was listed as runnable, and is blocked since the caps of all keys are smaller, may have kept another from being the first of
// all. What the round had reserved until then does not keep that one waiting.
func TestARoundBeginsAnew(t *testing.T) {
	b := &bench{}
	b.step(protocol.Request{Kind: protocol.SetLimit, Limit: 3, Pools: "db=1,gpu=1"})
	b.ask(1, "b", "db=1", 1)
	b.ask(2, "c", "gpu=1", 1)
	b.ask(3, "b", "gpu=1", 1)
	b.ask(4, "a", "gpu=1", 1)
	b.ask(5, "a", "db=1", 1)
	b.now++
	reply := b.Step(b.now, "c", engine.Client{}, protocol.Call{Number: uint64(b.now), Requests: []protocol.Request{
		{Kind: protocol.Release, ID: engine.ID{Client: "c", Number: 2, Weight: 1}}, {Kind: protocol.SetLimit, Caps: engine.Caps{1}},
	}})
	if g := reply.Notification.Grants; len(g) != 1 || g[0].ID.Number != 4 {
		t.Errorf("granted %v", g)
	}
}

// A rate comes back with time, and what a permit did not use of it with its release. A caller that lacks only a rate keeps nothing else
// from others.
func TestARateComesBackWithTime(t *testing.T) {
	b := &bench{now: 1_000_000_000_000}
	start := b.now
	to := func(ms int64) { b.now = start + ms*1000 - 1 }
	look := func() (grants []uint64) {
		_, grants = b.step(protocol.Request{Kind: protocol.Renew, ID: engine.ID{Client: "c", Number: 1, Weight: 1}, Lease: time.Minute})
		return grants
	}
	release := func(number uint64, weight int, used engine.Pools) (grants []uint64) {
		_, grants = b.step(protocol.Request{Kind: protocol.Release, ID: engine.ID{Client: "c", Number: number, Weight: weight}, Pools: used})
		return grants
	}
	due := func() int64 {
		end, _ := b.NextEnd()
		return (end - start + 500) / 1000
	}
	b.step(protocol.Request{Kind: protocol.SetLimit, Limit: 20, Pools: "gpu=1,rpm=2/1s"})
	for i := uint64(1); i <= 5; i++ {
		if is, want := b.ask(i, "", "rpm=1", 1), []protocol.Status{protocol.Granted, protocol.Queued}[min(1, i/3)]; is != want {
			t.Errorf("%d: %v", i, is)
		}
	}
	if due() != 500 {
		t.Errorf("due after %d ms", due())
	}
	if is := b.ask(10, "", "gpu=1", 18); is != protocol.Granted {
		t.Error("the rest is not free:", is)
	}
	release(10, 18, "")
	to(501)
	if grants := look(); !slices.Equal(grants, []uint64{3}) || due() != 1000 {
		t.Errorf("granted %v, and next after %d ms", grants, due())
	}
	if grants := release(3, 1, "rpm=0"); !slices.Equal(grants, []uint64{4}) { // it used none: one is there at once
		t.Errorf("granted %v", grants)
	}
	if grants := release(2, 1, "rpm=0"); len(grants) > 0 { // time has brought that one back already
		t.Errorf("granted %v", grants)
	}
	if grants := release(4, 1, "rpm=3"); len(grants) > 0 || due() != 2000 { // a debt of two
		t.Errorf("granted %v, and next after %d ms", grants, due())
	}
	s := b.State(b.now)
	if p := s.Pools[1]; p.Used != 4 || p.Back != 2 || p.Per != time.Second || p.Waiting != 1 || p.Next <= time.Second || p.Next > 1500*time.Millisecond { // when one can be taken
		t.Errorf("%+v", p)
	}
	to(2001)
	b.step(protocol.Request{Kind: protocol.SetLimit, Pools: "gpu=3"}) // which leaves the rate as it is
	if st := b.State(b.now); len(st.Waiters) > 0 || b.keys.pools["rpm"].unit != 500_000 {
		t.Errorf("%+v", st)
	}
}

// A ticket that lacks a fast rate and a slow one keeps others from the fast one only until that is back. Nothing of rates comes back in a
// cooldown, but for the part that an operator cuts off.
func TestRatesThatWait(t *testing.T) {
	b := &bench{now: 1_000_000_000_000}
	start := b.now
	due := func() int64 {
		end, _ := b.NextEnd()
		return (end - start + 500) / 1000
	}
	look := func(ms int64) (grants []uint64) {
		b.now = start + ms*1000 - 1
		_, grants = b.step(protocol.Request{Kind: protocol.Renew, ID: engine.ID{Client: "c", Number: 1, Weight: 1}, Lease: time.Hour})
		return grants
	}
	b.step(protocol.Request{Kind: protocol.SetLimit, Limit: 20, Pools: "fast=2/200ms,slow=1/10s"})
	b.ask(1, "", "fast=2,slow=1", 1)
	b.ask(2, "", "fast=1,slow=1", 1)
	b.ask(3, "", "fast=1", 1)
	b.ask(4, "", "fast=2", 1)
	if due() != 100 {
		t.Errorf("due after %d ms", due())
	}
	if grants := look(101); len(grants) > 0 || due() != 200 { // one of fast is there, and the first ticket keeps it
		t.Errorf("granted %v, and next after %d ms", grants, due())
	}
	if grants := look(201); !slices.Equal(grants, []uint64{3}) || due() != 10_000 { // and with it there are never two for the last one
		t.Errorf("granted %v, and next after %d ms", grants, due())
	}
	b.step(protocol.Request{Kind: protocol.Cooldown, Lease: 5 * time.Second})
	if p := b.State(b.now).Pools; p[1].Used != 1 || p[1].Next < 14*time.Second || p[0].Used > 2 {
		t.Errorf("%+v", p)
	}
	if look(5300); due() != 15_000 {
		t.Errorf("due after %d ms", due())
	}
	b.step(protocol.Request{Kind: protocol.Cooldown, Lease: time.Minute})
	b.now += 1_000_000
	if b.step(protocol.Request{Kind: protocol.Unpause}); due() != 16_000 {
		t.Errorf("due after %d ms", due())
	}
}

// In no time more of a rate is used than there is at once, and comes back in that time: whatever permits take, and however late each
// says what it has used.
func TestNoMoreOfARateIsUsedThanThereIs(t *testing.T) {
	const most, unit = 4, 250_000 // microseconds
	for seed := range uint64(200) {
		random := rand.New(rand.NewPCG(seed, 0))
		b := &bench{now: 1_000_000_000_000}
		b.step(protocol.Request{Kind: protocol.SetLimit, Limit: 20, Pools: "rpm=4/1s"})
		type grant struct {
			at int64
			n  int
		}
		var grants []grant // by number
		held := map[int]bool{}
		for range 100 {
			b.now += random.Int64N(2 * unit)
			if n := 1 + random.IntN(most); random.IntN(2) == 0 {
				id := engine.ID{Client: "c", Number: uint64(len(grants)), Weight: 1}
				r := protocol.Request{Kind: protocol.Ask, ID: id, Target: protocol.Target{Takes: engine.Pools(fmt.Sprint("rpm=", n))}, Lease: time.Hour}
				if is, _ := b.step(r); is == protocol.Granted {
					held[len(grants)] = true
					grants = append(grants, grant{b.now, n})
				}
				continue
			}
			for i := range held {
				used := random.IntN(grants[i].n + 2)
				b.step(protocol.Request{Kind: protocol.Release, ID: engine.ID{Client: "c", Number: uint64(i), Weight: 1}, Pools: engine.Pools(fmt.Sprint("rpm=", used))})
				grants[i].n = min(grants[i].n, used)
				delete(held, i)
				break
			}
		}
		level, last := 0.0, int64(0)
		for i, g := range grants {
			level = max(0, level-float64(g.at-last)/unit) + float64(g.n)
			if last = g.at; level > most+1e-6 {
				t.Fatalf("seed %d: %v are used at once with the grant %d of %d", seed, level, i, len(grants))
			}
		}
	}
}
