package redisengine_test

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"testing"
	"time"

	"sema/engine"
	"sema/internal/fixture/expect"
	"sema/internal/protocol"
)

// With any number of waiters and holders, a step does a bounded part of the
// work and tells a client to go on. So no step blocks the server for long, and
// all are served in the end. SEMA_BOUNDS=100000 measures it, too.
func TestStepsAreBounded(t *testing.T) {
	t.Parallel()
	n := boundsSize(t)
	small := newCrowd(t, 2*eachClient)
	first := session(t, small.engine(), small.name)
	first.do(first.request(protocol.Ask, 1, time.Hour))
	small.askAll(1, func() time.Duration { return time.Hour })
	small.handOffs(fmt.Sprintf("100 hand-offs, %d wait", small.queued()), first, first.request(protocol.Release, 1, 0))

	full := newCrowd(t, 5*eachClient)
	hour := func() time.Duration { return time.Hour }
	full.askAll(1, hour)
	full.snapshot("a snapshot in one step: 500 hold", 500, 0)

	c := newCrowd(t, n)
	head := session(t, c.engine(), c.name)
	head.do(head.request(protocol.Ask, 1, time.Hour))

	c.measured(fmt.Sprintf("%d join, %d in a call", n, eachClient), func() { c.askAll(1, hour) })
	if queued := c.queued(); queued != n {
		t.Fatalf("%d wait; want %d", queued, n)
	}
	late := session(t, c.engine(), c.name)
	c.measured(fmt.Sprintf("%d join in a call, at the end", largestCall), func() { c.step(late, asks(late, true, time.Hour)...) })
	c.measured(fmt.Sprintf("%d ask again in a call", largestCall), func() {
		again := asks(late, true, time.Hour)
		for i := range again {
			again[i].Again = true
		}
		c.step(late, again...)
	})
	c.measured(fmt.Sprintf("%d leave in a call", largestCall), func() { c.step(late, asks(late, false, 0)...) })
	c.measured("pause", func() { c.step(head, protocol.Request{Kind: protocol.Pause}) })
	c.measured("unpause", func() { c.step(head, protocol.Request{Kind: protocol.Unpause}) })
	c.handOffs(fmt.Sprintf("100 hand-offs, %d wait", n), head, head.request(protocol.Release, 1, 0))
	c.snapshot(fmt.Sprintf("a snapshot: 1 holds, %d wait", n-100), 1, n-100)

	c.measured(fmt.Sprintf("the limit from 1 to %d", n), func() {
		c.step(head, protocol.Request{Kind: protocol.SetLimit, Limit: n, Pin: true})
		steps := c.goOn("a larger limit", func() bool { return c.queued() == 0 })
		// A step removes at most so many tickets, and its own if that is the
		// next.
		if least := (n - 100 - mostTurns) / (mostTurns + 1); steps < least-1 {
			t.Errorf("%d were served in %d steps", n, steps)
		}
	})
	c.goOn("hearing of grants", func() bool { return len(c.held) == n-99 })
	c.snapshot(fmt.Sprintf("a snapshot: %d hold", n-99), n-99, 0)
	c.measured("a list of all names", func() {
		_, err := c.engine().List(expect.Within(t))
		expect.OK(t, err)
	})
	c.manyAtOnce()
	c.expireAll(n)
}

// handOffs hands owner's permit over a hundred times, and adds the last holder
// to c.held.
func (c *crowd) handOffs(what string, owner *direct, release protocol.Request) {
	c.t.Helper()
	c.measured(what, func() {
		for range 100 {
			c.step(owner, release)
			c.goOn("hand-offs", func() bool { return len(c.held) > 0 })
			for id, d := range c.held {
				release.ID, owner = id, d
				delete(c.held, id)
			}
		}
	})
	c.held[release.ID] = owner
}

// asks returns the largest call of asks, or of releases of the same permits.
func asks(d *direct, ask bool, lease time.Duration) (rs []protocol.Request) {
	for n := range uint64(largestCall) {
		r := d.request(protocol.Release, n+1, 0)
		if ask {
			r = d.request(protocol.Ask, n+1, lease)
			r.Wait = true
		}
		rs = append(rs, r)
	}
	return rs
}

// manyAtOnce measures the largest calls beside many holders.
func (c *crowd) manyAtOnce() {
	d := session(c.t, c.engine(), c.name)
	limit := len(c.clients) * eachClient
	d.do(protocol.Request{Kind: protocol.SetLimit, Limit: limit + largestCall, Pin: true})
	c.measured(fmt.Sprintf("%d acquire in a call", largestCall), func() { c.step(d, asks(d, true, time.Hour)...) })
	c.measured(fmt.Sprintf("%d renew in a call", largestCall), func() {
		renew := asks(d, false, 0)
		for i := range renew {
			renew[i].Kind, renew[i].Lease = protocol.Renew, time.Hour
		}
		c.step(d, renew...)
	})
	d.do(protocol.Request{Kind: protocol.SetLimit, Limit: len(c.held), Pin: true})
	from := 1 + eachClient
	c.askAll(from, func() time.Duration { return time.Hour })
	queued := c.queued()
	c.measured(fmt.Sprintf("%d release in a call, %d wait", largestCall, queued), func() {
		c.step(d, asks(d, false, 0)...)
		if turns := queued - c.queued(); turns != mostTurns {
			c.t.Errorf("a step handed over %d permits", turns)
		}
		c.goOn("many releases", func() bool { return c.queued() == queued-largestCall })
	})
}

// expireAll ends all leases at one moment, while equally many tickets wait.
func (c *crowd) expireAll(n int) {
	end := time.Now().Add(time.Duration(n)*100*time.Microsecond + 2*time.Second)
	of := map[*direct][]protocol.Request{}
	for id, d := range c.held {
		r := d.request(protocol.Renew, id.Number, 0)
		of[d] = append(of[d], r)
	}
	for d, rs := range of {
		for part := range slices.Chunk(rs, largestCall) {
			for i := range part {
				part[i].Lease = max(time.Millisecond, time.Until(end))
			}
			c.step(d, part...)
		}
	}
	if late := time.Since(end); late > 0 {
		c.t.Logf("the renewals took %v longer than the leases", late)
	}
	clear(c.held)
	queued := c.queued()
	time.Sleep(time.Until(end) + 10*time.Millisecond) // there is no event for the end of a lease
	c.measured(fmt.Sprintf("%d leases end at once, %d wait", c.holders(), queued), func() {
		for c.queued() > 0 {
			for client, d := range c.clients {
				if len(c.waits[d]) > 0 { // the client that was told to ask at the next lease's end would ask so
					r := c.ask(client, int(c.waits[d][0].Number), time.Hour)
					r.Again = true
					c.step(d, r)
					break
				}
			}
			c.goOn("expiry", func() bool { return c.queued() == 0 || len(c.told) == 0 })
		}
	})
}

// boundsSize is the number of waiters, and of holders, in TestStepsAreBounded.
func boundsSize(t testing.TB) int {
	words := os.Getenv("SEMA_BOUNDS")
	if words == "" {
		return 1000
	}
	n, err := strconv.Atoi(words)
	if err != nil || n < 1000 || n%eachClient != 0 {
		t.Fatalf("SEMA_BOUNDS=%s; want a multiple of %d, at least 1000", words, eachClient)
	}
	return n
}

// The same with keys, and with users of organisations: ten tickets of each, neighbours in the queue with different keys.
// After the cap of keys grows, each step handles a bounded number of keys, and later
// steps handle the rest. SEMA_BOUNDS=100000 measures it, too.
func TestStepsOfKeysAreBounded(t *testing.T) {
	t.Parallel()
	for name, orgs := range map[string]int{"keys": 0, "users of one organisation": 1, "users of ten": 10} {
		t.Run(name, func(t *testing.T) { t.Parallel(); stepsOfKeys(t, orgs) })
	}
}

func stepsOfKeys(t *testing.T, orgs int) {
	n := boundsSize(t)
	hour := func() time.Duration { return time.Hour }
	c := newCrowd(t, n)
	c.keys, c.orgs = n/10, orgs
	head := session(t, c.engine(), c.name)
	first := head.request(protocol.Ask, 1, time.Hour)
	first.Key = "first"
	head.do(first)
	c.measured(fmt.Sprintf("%d of %d keys join, %d in a call", n, c.keys, eachClient), func() { c.askAll(1, hour) })
	if queued := c.queued(); queued != n {
		t.Fatalf("%d wait; want %d", queued, n)
	}
	c.handOffs(fmt.Sprintf("100 hand-offs, %d of %d keys wait", n, c.keys), head, head.request(protocol.Release, 1, 0))
	base := c.queued() // one permit is held

	act := func(perKey, limit int) {
		caps := engine.Caps{perKey}
		if orgs > 0 {
			caps = engine.Caps{0, perKey}
		}
		c.step(head, protocol.Request{Kind: protocol.SetLimit, Limit: limit, Caps: caps, Pin: true})
	}
	c.measured(fmt.Sprintf("the limit from 1 to %d, 1 for each key", n), func() {
		act(1, n)
		c.goOn("a larger limit", func() bool { return c.queued() == base-(c.keys-1) })
	})
	c.measured(fmt.Sprintf("%d full keys may hold 2 each", c.keys), func() {
		act(2, n)
		steps := c.goOn("a larger cap of keys", func() bool { return c.queued() == base-(2*c.keys-1) })
		if least := c.keys / (mostTurns + 1); steps < least-1 {
			t.Errorf("%d were served in %d steps", c.keys, steps)
		}
	})
	c.measured(fmt.Sprintf("%d keys may hold all", c.keys), func() {
		act(-1, n)
		c.goOn("no cap of keys", func() bool { return c.queued() == 0 })
	})
}

// The same with as many sets of pools as may wait, of users of organisations. Each step looks at each set, and at
// the keys of those tickets that reserve.
func TestStepsOfPoolsAreBounded(t *testing.T) {
	t.Parallel()
	n := boundsSize(t)
	c := newCrowd(t, n)
	c.keys, c.orgs, c.pools = n/10, 10, "a=1,b=1,c=1,d=1,e=1,z=1"
	for bits := 1; bits <= engine.MaxPools; bits++ {
		takes := map[string]int{"z": 1} // so that one is served at a time
		for i, pool := range []string{"a", "b", "c", "d", "e"} {
			if bits&(1<<i) != 0 {
				takes[pool] = 1
			}
		}
		text, err := engine.NewPools(takes, 1)
		expect.OK(t, err)
		c.takes = append(c.takes, text)
	}
	head := session(t, c.engine(), c.name)
	first := head.request(protocol.Ask, 1, time.Hour)
	first.Target, first.Pools, first.Limit = protocol.Target{Key: "first", Takes: c.pools}, c.pools, n
	head.do(first)
	hour := func() time.Duration { return time.Hour }
	c.measured(fmt.Sprintf("%d of %d keys and %d sets join, %d in a call", n, c.keys, len(c.takes), eachClient), func() { c.askAll(1, hour) })
	if queued := c.queued(); queued != n {
		t.Fatalf("%d wait; want %d", queued, n)
	}
	c.handOffs(fmt.Sprintf("100 hand-offs, %d of %d keys and %d sets wait", n, c.keys, len(c.takes)), head, head.request(protocol.Release, 1, 0))
	c.measured("each pool has room for all", func() {
		c.step(head, protocol.Request{Kind: protocol.SetLimit, Pools: engine.Pools(fmt.Sprintf("a=%[1]d,b=%[1]d,c=%[1]d,d=%[1]d,e=%[1]d,z=%[1]d", n)), Pin: true})
		c.goOn("larger pools", func() bool { return c.queued() == 0 })
	})
}
