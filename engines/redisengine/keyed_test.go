package redisengine_test

import (
	"fmt"
	"testing"
	"time"

	"sema/engine"
	"sema/internal/fixture/expect"
	"sema/internal/fixture/redistest"
)

// A client that names no keys shares a semaphore with one that does: its permits
// belong to the key "".
func TestAClientWithoutKeysSharesASemaphoreWithKeys(t *testing.T) {
	server := redistest.Start(t)
	open := func() (engine.Session, func(kind engine.Kind, n int, key string, wait bool) engine.Answer) {
		s, err := engineAt(t, server.Addr()).Open("x", engine.Client{}, func(engine.Notification) {})
		expect.OK(t, err)
		calls := uint64(0)
		return s, func(kind engine.Kind, n int, key string, wait bool) engine.Answer {
			t.Helper()
			calls++
			r := engine.Request{
				Kind: kind, ID: engine.ID{Client: s.Client(), Number: uint64(n), Weight: 1}, Key: key,
				Limit: 2, Lease: time.Minute, Ticket: time.Minute, Wait: wait,
			}
			reply, err := s.Step(whole, engine.Call{Number: calls, Requests: []engine.Request{r}})
			expect.OK(t, err)
			return reply.Answers[0]
		}
	}
	status := func(a engine.Answer, want engine.Status) {
		t.Helper()
		if a.Status != want {
			t.Fatalf("%v, want %v", a.Status, want)
		}
	}
	_, a := open()
	s, b := open()
	status(b(engine.Ask, 1, "", true), engine.Granted) // the semaphore has no keys yet
	status(a(engine.Ask, 1, "acme", true), engine.Granted)
	status(a(engine.Ask, 2, "acme", true), engine.Queued)
	status(b(engine.Ask, 2, "", true), engine.Queued)
	st, err := s.State(expect.Within(t))
	expect.OK(t, err)
	if got := fmt.Sprint(st.Keys); got != `[{ 1 1 0 100 false false 1} {acme 1 1 0 100 false false 0}]` && got != `[{acme 1 1 0 100 false false 0} { 1 1 0 100 false false 1}]` {
		t.Error(got)
	}
	status(a(engine.Release, 1, "", false), engine.Done)
	status(a(engine.Renew, 2, "", false), engine.Granted) // its key held fewer permits
	status(b(engine.Release, 1, "", false), engine.Done)
	status(b(engine.Renew, 2, "", false), engine.Granted)
	status(b(engine.Release, 2, "", false), engine.Done)
	status(a(engine.Release, 2, "", false), engine.Done)
}
