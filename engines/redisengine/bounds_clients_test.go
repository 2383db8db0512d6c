package redisengine_test

import (
	"fmt"
	"testing"
	"time"

	"sema/internal/fixture/expect"
	"sema/internal/protocol"
)

// The cost of a step that looks at all clients with a fence, and at all clients
// that keep permits. SEMA_BOUNDS=100000 makes 5,000 of each.
func TestStepsBesideManyClients(t *testing.T) {
	t.Parallel()
	clients := boundsSize(t) / 20
	t.Run("fences", func(t *testing.T) {
		c := newCrowd(t, 0)
		e := c.engine()
		outage := func(n int) {
			for range n {
				d := session(t, e, c.name)
				stop := c.watch()
				_, err := d.Step(whole, protocol.Call{Number: 1, Fence: true, Requests: []protocol.Request{d.request(protocol.Renew, 1, time.Hour)}})
				expect.OK(t, err)
				stop()
			}
		}
		d := session(t, e, c.name)
		d.do(d.request(protocol.Ask, 1, time.Hour))
		c.measured("the first 10 clients that lost sight of a call", func() { outage(10) })
		outage(clients - 20)
		c.measured(fmt.Sprintf("the same, the last 10 of %d clients", clients), func() { outage(10) })
	})
	t.Run("keepers", func(t *testing.T) {
		c := newCrowd(t, 0)
		e := c.engine()
		for range clients {
			d := session(t, e, c.name)
			ask := d.request(protocol.Ask, 1, time.Hour)
			ask.Limit = clients
			number := uint64(0)
			expect.Until(t, "being heard, and told to keep", func() bool {
				number++
				reply, err := d.Step(whole, protocol.Call{Number: number, Keep: 10 * time.Minute, Requests: []protocol.Request{ask}})
				expect.OK(t, err)
				return reply.Keep
			})
		}
		c.measured(fmt.Sprintf("a newcomer waits beside %d clients that keep", clients), func() {
			d := session(t, e, c.name)
			ask := d.request(protocol.Ask, 1, time.Hour)
			ask.Wait = true
			c.step(d, ask)
		})
	})
}
