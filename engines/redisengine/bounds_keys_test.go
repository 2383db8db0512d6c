package redisengine_test

import (
	"fmt"
	"testing"
	"time"

	"sema/engine"
	"sema/internal/fixture/expect"
	"sema/internal/protocol"
)

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
