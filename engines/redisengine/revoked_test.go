package redisengine_test

import (
	"testing"
	"time"

	"sema/engine"
	"sema/internal/fixture/expect"
	"sema/internal/fixture/redistest"
	"sema/internal/protocol"
)

// A revoked permit counts for its own key until it is released, also beside permits without a key.
func TestARevokedPermitIsReleasedForItsKey(t *testing.T) {
	server := redistest.Start(t)
	s, err := engineAt(t, server.Addr()).Open("x", engine.Client{}, func(protocol.Notification) {})
	expect.OK(t, err)
	calls := uint64(0)
	step := func(r protocol.Request, number uint64, want protocol.Status) {
		t.Helper()
		calls++
		r.ID, r.Limit, r.Caps[0], r.Lease, r.Ticket = engine.ID{Client: s.Client(), Number: number, Weight: 1}, 5, 1, time.Minute, time.Minute
		reply, err := s.Step(expect.Within(t), protocol.Call{Number: calls, Requests: []protocol.Request{r}})
		expect.OK(t, err)
		if got := reply.Answers[0].Status; got != want {
			t.Errorf("%v of permit %d: %v, want %v", r.Kind, number, got, want)
		}
	}
	ask := protocol.Request{Kind: protocol.Ask, Target: protocol.Target{Key: "acme"}}
	step(protocol.Request{Kind: protocol.Ask}, 1, protocol.Granted)
	step(ask, 2, protocol.Granted)
	step(protocol.Request{Kind: protocol.Revoke}, 2, protocol.Done)
	step(ask, 3, protocol.Refused)
	step(protocol.Request{Kind: protocol.Release}, 2, protocol.Done)
	step(ask, 4, protocol.Granted)
	step(protocol.Request{Kind: protocol.Release}, 1, protocol.Done)
	step(protocol.Request{Kind: protocol.Release}, 4, protocol.Done)
	step(ask, 5, protocol.Granted)
}
