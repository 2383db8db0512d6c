package redisengine_test

import (
	"fmt"
	"testing"
	"time"

	"sema/engine"
	"sema/internal/fixture/expect"
	"sema/internal/fixture/redistest"
	"sema/internal/protocol"
)

// A client that names no keys shares a semaphore with one that does: its permits
// belong to the key "".
func TestAClientWithoutKeysSharesASemaphoreWithKeys(t *testing.T) {
	server := redistest.Start(t)
	open := func() (protocol.Session, func(kind protocol.Kind, n int, key string, wait bool) protocol.Answer) {
		s, err := engineAt(t, server.Addr()).Open("x", engine.Client{}, func(protocol.Notification) {})
		expect.OK(t, err)
		calls := uint64(0)
		return s, func(kind protocol.Kind, n int, key string, wait bool) protocol.Answer {
			t.Helper()
			calls++
			r := protocol.Request{
				Kind: kind, ID: engine.ID{Client: s.Client(), Number: uint64(n), Weight: 1}, Key: key,
				Limit: 2, Lease: time.Minute, Ticket: time.Minute, Wait: wait,
			}
			reply, err := s.Step(whole, protocol.Call{Number: calls, Requests: []protocol.Request{r}})
			expect.OK(t, err)
			return reply.Answers[0]
		}
	}
	status := func(a protocol.Answer, want protocol.Status) {
		t.Helper()
		if a.Status != want {
			t.Fatalf("%v, want %v", a.Status, want)
		}
	}
	_, a := open()
	s, b := open()
	status(b(protocol.Ask, 1, "", true), protocol.Granted) // the semaphore has no keys yet
	status(a(protocol.Ask, 1, "acme", true), protocol.Granted)
	status(a(protocol.Ask, 2, "acme", true), protocol.Queued)
	status(b(protocol.Ask, 2, "", true), protocol.Queued)
	st, err := s.State(expect.Within(t))
	expect.OK(t, err)
	if got := fmt.Sprint(st.Keys); got != `[{ 1 1 0 100 false false true 1} {acme 1 1 0 100 false false true 0}]` && got != `[{acme 1 1 0 100 false false true 0} { 1 1 0 100 false false true 1}]` {
		t.Error(got)
	}
	status(a(protocol.Release, 1, "", false), protocol.Done)
	status(a(protocol.Renew, 2, "", false), protocol.Granted) // its key held fewer permits
	status(b(protocol.Release, 1, "", false), protocol.Done)
	status(b(protocol.Renew, 2, "", false), protocol.Granted)
	status(b(protocol.Release, 2, "", false), protocol.Done)
	status(a(protocol.Release, 2, "", false), protocol.Done)
}
