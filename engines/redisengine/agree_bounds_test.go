package redisengine

import (
	"context"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"sema/engine"
	"sema/internal/protocol"
)

// single makes one call of the first client, and compares what is said and kept.
func (j *judge) single(t failer, keep time.Duration, rs ...protocol.Request) protocol.Reply {
	c := j.next()
	c.Requests, c.Keep = rs, keep
	reply := j.step(j.clients[0], c)
	j.compare()
	j.sync(t)
	return reply
}

// The script and the ledger agree in steps that leave work to the next ones.
func TestScriptAgreesAtTheBounds(t *testing.T) {
	t.Parallel()
	var m met
	j := newJudge(newBench(t, &m), true)
	const lease = 50 * time.Millisecond
	ask := protocol.Request{Kind: protocol.Ask, Limit: 1, Lease: lease, Ticket: lease, Wait: true}
	one := func(rs ...protocol.Request) protocol.Reply { return j.single(t, 0, rs...) }
	first := j.clients[0]
	j.each(j.clients, ask, 0)
	one(protocol.Request{Kind: protocol.SetLimit, Limit: 200}) // 199 are served, in parts
	for range 199/mostTurns + 1 {
		if m.turns.Load() == 0 {
			t.Fatal("a step took off all tickets")
		}
		one(protocol.Request{Kind: protocol.Renew, ID: engine.ID{Client: first, Number: 1, Weight: 1}, Lease: lease})
	}
	if n := len(j.ledger.Save().Holders); n != 200 {
		t.Fatalf("%d hold", n)
	}

	j.now += 2 * lease.Microseconds() // all leases have ended, and some clients ask for their old permits
	ended := ask
	ended.ID, ended.Limit, ended.Wait = engine.ID{Client: first, Number: 999, Weight: mostEnds}, 200, false
	more := ended
	more.ID = engine.ID{Client: first, Number: 998, Weight: 1}
	if a := one(ended, more).Answers; a[0].Status != protocol.Granted || a[1].Status != protocol.Refused {
		t.Errorf("a step ended other than %d leases: %+v", mostEnds, a)
	}
	one(protocol.Request{Kind: protocol.Release, ID: ended.ID})
	for range 3 {
		one(protocol.Request{Kind: protocol.Renew, ID: j.last[j.clients[150]], Lease: lease}, protocol.Request{Kind: protocol.Revoke, ID: j.last[j.clients[199]]})
	}
	if m.ends.Load() == 0 {
		t.Error("no step left a lease to the next one")
	}
	heavy := ask
	heavy.ID, heavy.Limit, heavy.Wait = engine.ID{Client: first, Number: 1000, Weight: 200}, 200, false
	one(heavy)
	one(protocol.Request{Kind: protocol.Release, ID: heavy.ID})

	ask.Limit = 200
	j.each(j.clients, ask, lease) // all keep permits
	one(protocol.Request{Kind: protocol.Ask, ID: engine.ID{Client: first, Number: 1001, Weight: 1}, Lease: lease, Ticket: lease, Wait: true})
	one(protocol.Request{Kind: protocol.Pause})
	if m.told.Load() == 0 {
		t.Error("no step left a keeper to the next one")
	}
}

// The first request of a call meets more tickets of dead clients than a step takes off, and a later one changes who may go on: it
// asks for the ticket that watches, or pauses.
func TestScriptAgreesOnWhoGoesOn(t *testing.T) {
	t.Parallel()
	var m met
	b := newBench(t, &m)
	for _, kind := range []protocol.Kind{protocol.Ask, protocol.Pause} {
		j := newJudge(b, true)
		ask := protocol.Request{Kind: protocol.Ask, Limit: 1, Lease: time.Second, Ticket: time.Second, Wait: true}
		j.each(j.clients, ask, 0)
		j.now += time.Minute.Microseconds()
		ask.ID = j.ledger.Save().Watcher
		later := ask
		later.Kind = kind
		if j.single(t, 0, ask, later); len(j.ledger.Save().Waiters) < 100 {
			t.Fatal("a step took off all tickets")
		}
	}
}

// A pinned or paused semaphore outlives its keys with holders and waiters, and
// is then empty.
func TestScriptAgreesOnWhatOutlivesIdleness(t *testing.T) {
	t.Parallel()
	var m met
	j := newJudge(newBench(t, &m), false)
	step := func(rs ...protocol.Request) protocol.Reply { return j.single(t, 0, rs...) }
	ask := func(number uint64) protocol.Request {
		return protocol.Request{
			Kind: protocol.Ask, ID: engine.ID{Client: j.clients[0], Number: number, Weight: 1}, Limit: 1,
			Lease: time.Second, Ticket: time.Second, Wait: true,
		}
	}
	pin, pause := protocol.Request{Kind: protocol.SetLimit, Limit: 1, Pin: true}, protocol.Request{Kind: protocol.Pause}
	unset, unpause, remove := protocol.Request{Kind: protocol.UnsetLimit}, protocol.Request{Kind: protocol.Unpause}, protocol.Request{Kind: protocol.Remove}
	for what, rs := range map[string][]protocol.Request{
		"pinned": {pin}, "paused": {pause}, "pinned, and no longer paused": {pin, pause, unpause}, "paused, and no longer pinned": {pin, pause, unset},
		"paused, with a limit that never was pinned": {pause, unset}, "pinned, and never paused": {pin, unpause},
	} {
		step(ask(1), ask(2), ask(3))
		step(rs...)
		j.sync(t)
		j.pass(t, time.Duration(j.ledger.Save().Keep-j.now)*time.Microsecond+2*time.Millisecond)
		if reply := step(remove); reply.Answers[0].Status != protocol.Done {
			t.Errorf("%s: as soon as its keys expire it cannot be removed: %+v", what, reply)
		}
	}
	if m.forgotten.Load() > 0 {
		t.Error("it was forgotten")
	}
	step(ask(1), pin, pause)
	step(unset, unpause)
	j.pass(t, time.Hour)
	if m.forgotten.Load() == 0 {
		t.Error("what was neither pinned nor paused any more was not forgotten")
	}
}

// The right to keep permits may end after the semaphore is forgotten. The next one begins without it.
func TestScriptAgreesOnARightThatOutlivesItsSemaphore(t *testing.T) {
	t.Parallel()
	var m met
	j := newJudge(newBench(t, &m), false)
	ask := protocol.Request{Kind: protocol.Ask, ID: engine.ID{Client: j.clients[0], Number: 1, Weight: 1}, Limit: 1, Lease: time.Millisecond}
	j.single(t, time.Second, ask)
	j.pass(t, 70*time.Second)
	j.single(t, time.Second)
	j.pass(t, 55*time.Second)
	if j.compare(); m.forgotten.Load() == 0 || j.rdb.PTTL(t.Context(), j.keys.all[5]).Val() <= 0 {
		t.Fatal("the semaphore was to be forgotten, and the right was to last longer")
	}
	j.single(t, time.Second, ask)
}

// A fence ends 1000 seconds after it was raised, also if another client raised one
// since.
func TestScriptAgreesOnTheEndOfAFence(t *testing.T) {
	t.Parallel()
	var m met
	j := newJudge(newBench(t, &m), false)
	set := func(client string, number uint64, fence bool) protocol.Reply {
		reply := j.step(client, protocol.Call{Number: number, Fence: fence, Requests: []protocol.Request{{Kind: protocol.SetLimit, Limit: int(number), Pin: true}}})
		j.sync(t)
		return reply
	}
	late := func(reply protocol.Reply) bool { return reply.Answers == nil }
	a, b := j.clients[0], j.clients[1]
	set(a, 10, true)
	j.pass(t, 900*time.Second)
	if set(b, 10, true); !late(set(a, 9, false)) {
		t.Error("a late call was carried out")
	}
	j.pass(t, 200*time.Second)
	if late(set(a, 8, false)) || !late(set(b, 8, false)) {
		t.Error("one fence has ended, and the other one has not")
	}
	j.pass(t, 1000*time.Second)
	if late(set(b, 7, false)) {
		t.Error("both fences have ended")
	}
	if m.fences.Load() == 0 {
		t.Error("no call was made that a fence had refused")
	}
}

// The server keeps the description of a client at least as long as any of its
// permits and tickets, with any mix of leases.
func TestAClientIsKnownAsLongAsItsPermits(t *testing.T) {
	s := &session{}
	now := time.Now()
	for _, c := range []struct {
		after, lease time.Duration
		says         bool
	}{
		{0, time.Second, true},
		{time.Second, time.Second, false},
		{time.Second, time.Hour, true}, // the permit outlives the description of a second ago
		{40 * time.Second, time.Second, false},
		{30 * time.Minute, time.Hour, false},
		{20 * time.Minute, time.Hour, true},
		{time.Hour, 0, false},
	} {
		now = now.Add(c.after)
		keep := s.describe(now, protocol.Call{Requests: []protocol.Request{{Kind: protocol.Ask, Lease: c.lease}}})
		if said := keep > 0; said != c.says {
			t.Errorf("%v later, with a lease of %v: described: %v", c.after, c.lease, said)
		}
		if keep > 0 {
			s.describedUntil = now.Add(keep)
		}
		if s.describedUntil.Before(now.Add(c.lease)) {
			t.Errorf("a lease of %v outlives the description", c.lease)
		}
	}
}

// A program or an eviction deletes some of a semaphore's keys, but not its state. No step fails then. As soon as the
// limit and the caps allow all, nobody waits any more, and in the end nothing counts as held.
func TestDeletedKeysHoldUpNobodyForGood(t *testing.T) {
	t.Parallel()
	var m met
	b, ctx := newBench(t, &m), context.Background()
	rapid.Check(t, func(t *rapid.T) {
		j := newJudge(b, false)
		j.names = []string{"", "b", "a", "a\x01x", "a\x01y", "a\x01x\x01m", "b\x01x"}
		j.sync(t)
		step := func(client string, requests ...protocol.Request) {
			c := j.next()
			c.Requests = requests
			w := words{keys: j.keys, client: client, keyed: true}
			args := w.encode(c, 0)
			args[0], args[1] = "evalsha", b.step
			b.rdb.Set(ctx, "now", j.now, 0)
			if err := b.rdb.Do(ctx, args...).Err(); err != nil {
				t.Fatalf("%+v: %v", requests, err)
			}
		}
		for range rapid.IntRange(5, 40).Draw(t, "steps") {
			j.now += rapid.Int64Range(0, 3000).Draw(t, "µs")
			client := j.client(t)
			var requests []protocol.Request
			for range rapid.IntRange(1, 3).Draw(t, "requests") {
				r := j.request(t, client)
				if r.Kind == protocol.Ask || r.Kind == protocol.Renew {
					r.Lease, r.Ticket = time.Hour, time.Hour
				}
				requests = append(requests, r)
			}
			step(client, requests...)
			if one(t, 8, "deletion") {
				kind := rapid.SampledFrom([]string{"holders", "waiters", "turn", "keys", "lines"}).Draw(t, "deleted")
				b.rdb.Del(ctx, j.keys.prefix+kind)
			}
		}

		first, open := j.clients[0], protocol.Request{Kind: protocol.SetLimit, Limit: 10_000, Caps: engine.Caps{-1, -1, -1}}
		step(first, open, protocol.Request{Kind: protocol.Unpause})
		for _, name := range j.names {
			step(first, protocol.Request{Kind: protocol.UnsetKey, Target: protocol.Target{Key: engine.Key(name)}})
		}
		for id, value := range b.rdb.HGetAll(ctx, j.keys.state()).Val() {
			if isTicket(value) {
				t.Fatalf("%s waits for ever", id)
			}
		}

		j.pass(t, time.Hour+10*time.Second)
		step(first, open)
		st := decoded(t, b.rdb.EvalSha(ctx, b.state, j.keys.ofState(), defaultReadSize))
		if n := b.rdb.HLen(ctx, j.keys.prefix+"keys").Val(); st.used > 0 || n > 1 { // the record common to all keys
			t.Fatalf("nobody holds, and %d count, with %d records of keys", st.used, n-1)
		}
	})
}

// Permits that take of pools and rates come and go while nobody waits, and some say what they have used: the fast path and
// the rules take turns.
func TestScriptAgreesOnPoolsThatNobodyWaitsFor(t *testing.T) {
	t.Parallel()
	var m met
	j := newJudge(newBench(t, &m), false)
	j.names = []string{""} // calls name keys
	step := func(rs ...protocol.Request) protocol.Reply { return j.single(t, 0, rs...) }
	draw := rand.New(rand.NewPCG(1, 2))
	pick := func(list ...engine.Pools) engine.Pools { return list[draw.IntN(len(list))] }
	var held []engine.ID
	granted := 0
	for number := range uint64(1000) {
		if len(held) > 0 && draw.IntN(2) == 0 {
			at := max(draw.IntN(len(held)), len(held)-1-draw.IntN(8)) // rather a new one, of which time has brought back a part
			r := protocol.Request{Kind: protocol.Release, ID: held[at]}
			if draw.IntN(3) == 0 {
				r.Pools = pick("db=0", "GPU=0,db=1", "db=7", "lic=0")
			}
			step(r)
			held = slices.Delete(held, at, at+1)
			continue
		}
		ask := protocol.Request{
			Kind: protocol.Ask, ID: engine.ID{Client: j.clients[0], Number: number + 1, Weight: 1 + draw.IntN(2)}, Limit: 50, Lease: time.Minute, Ticket: time.Minute,
			Pools: "GPU=300/1h,db=40+20/1s,lic=9", Target: protocol.Target{Key: engine.Key(pick("", "a", "a\x01x")), Takes: pick("", "GPU=1", "db=3", "GPU=2,db=1", "db=1,lic=1", "lic=2")},
		}
		if step(ask).Answers[0].Status == protocol.Granted {
			held, granted = append(held, ask.ID), granted+1
		}
		if draw.IntN(4) == 0 {
			j.pass(t, time.Duration(draw.IntN(500))*time.Millisecond)
		}
	}
	if granted < 400 {
		t.Errorf("%d were granted", granted)
	}
}
