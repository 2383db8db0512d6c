package dashboard_test

import (
	"testing"
	"time"

	"sema/dashboard"
	"sema/engine"
	"sema/internal/fixture/expect"
	"sema/internal/fixture/opened"
	"sema/internal/protocol"
)

// Of a limit that finds itself the page says how; of another one it says nothing of that.
func TestALimitThatFindsItself(t *testing.T) {
	kept(t, dashboard.Options{}, func(t *testing.T, s *site) {
		acquire(t, s.semaphore("llm", 37, nil), 1)
		acquire(t, s.semaphore("plain", 37, nil), 1)
		raw := opened.Session(t, s.engine, "llm", engine.Client{})
		for number, bad := range []int{310, 31} {
			reply, err := raw.Step(t.Context(), protocol.Call{Number: uint64(number + 1), Requests: []protocol.Request{
				{Kind: protocol.SetLimit, Limit: 37, Auto: &engine.Auto{Min: 2, Max: 200, Bad: bad}},
			}})
			if err != nil || reply.Answers[0].Status != protocol.Done {
				t.Fatal(reply, err)
			}
			time.Sleep(20 * time.Second)
		}
		expect.Has(t, s.get(200, "/semaphore?name=llm"), "adapting 2…200: 3.1 % of the time held was bad")
		hasNot(t, s.get(200, "/semaphore?name=plain"), "adapting")
	})
}
