package redisengine_test

import (
	"fmt"
	"testing"
	"time"

	"sema/engine"
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
