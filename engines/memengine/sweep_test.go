package memengine

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"sema/engine"
	"sema/internal/fixture/expect"
	"sema/internal/protocol"
)

// Semaphores that nobody uses any more take no memory for ever.
func TestIdleSemaphoresAreSweptAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := New()
		defer func() { _ = e.Close() }()
		use := func(n int) {
			s, err := e.Open(fmt.Sprint("x", n), engine.Client{}, func(protocol.Notification) {})
			expect.OK(t, err)
			_, err = s.Step(context.Background(), protocol.Call{Number: 1, Requests: []protocol.Request{
				{Kind: protocol.Ask, ID: engine.ID{Client: s.Client(), Number: 1, Weight: 1}, Limit: 1, Lease: time.Second, Ticket: time.Second},
			}})
			expect.OK(t, err)
			expect.OK(t, s.Close())
		}
		for n := range 1000 {
			use(n)
			time.Sleep(10 * time.Minute)
		}
		if most := 64; len(e.names) > most {
			t.Errorf("%d semaphores are kept, each unused for ten minutes and more; at most %d need to be", len(e.names), most)
		}
	})
}
