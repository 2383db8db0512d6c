package httpengine_test

import (
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"sema/access"
	"sema/engine"
	"sema/engines/httpengine"
	"sema/engines/memengine"
	"sema/internal/fixture/expect"
	"sema/internal/protocol"
	"sema/server"
)

// Holders with the right to use a semaphore may adapt its limit, and the audit log has a
// line for each change. They may not set an operator's limit.
func TestHoldersAdaptTheLimit(t *testing.T) {
	tokens, err := server.ReadTokens(strings.NewReader("worker use * secret-of-the-worker"))
	expect.OK(t, err)
	var mu sync.Mutex
	var lines []access.Record
	inner := memengine.New()
	s, err := server.New(inner, &server.Options{Tokens: tokens, Audit: func(a access.Record) {
		mu.Lock()
		defer mu.Unlock()
		lines = append(lines, a)
	}})
	expect.OK(t, err)
	defer s.Close()
	web := httptest.NewServer(s)
	defer web.Close()
	e, err := httpengine.New(web.URL, &httpengine.Options{Token: "worker.secret-of-the-worker"})
	expect.OK(t, err)
	defer func() { _ = e.Close() }()
	session, err := e.Open("vendor", engine.Self(""), func(protocol.Notification) {})
	expect.OK(t, err)
	number := uint64(0)
	step := func(r protocol.Request) (protocol.Status, error) {
		number++
		reply, err := session.Step(expect.Within(t), protocol.Call{Number: number, Requests: []protocol.Request{r}})
		if err != nil {
			return 0, err
		}
		return reply.Answers[0].Status, nil
	}
	want := func(r protocol.Request, want protocol.Status) {
		t.Helper()
		if got, err := step(r); err != nil || got != want {
			t.Fatalf("%v: %v, %v; want %v", r.Kind, got, err, want)
		}
	}
	auto := &engine.Auto{Min: 2, Max: 9}
	want(protocol.Request{Kind: protocol.Ask, ID: engine.ID{Client: session.Client(), Number: 1, Weight: 1}, Limit: 5, Lease: expect.Patience, Ticket: expect.Patience}, protocol.Granted)
	want(protocol.Request{Kind: protocol.Report, Totals: &protocol.Totals{Good: 7, Waited: 1}}, protocol.Done)
	for range 2 {
		want(protocol.Request{Kind: protocol.SetLimit, Limit: 6, Auto: auto}, protocol.Done)
	}
	for what, r := range map[string]protocol.Request{
		"another's limit": {Kind: protocol.SetLimit, Limit: 8, Pin: true}, "no totals": {Kind: protocol.Report}, "no limit": {Kind: protocol.SetLimit, Auto: auto},
	} {
		if got, err := step(r); err == nil {
			t.Errorf("%s: %v", what, got)
		}
	}
	r, err := session.(protocol.Reporting).Reports(expect.Within(t))
	expect.OK(t, err)
	if r.Limit != 6 || len(r.Totals) != 1 || r.Auto != *auto {
		t.Errorf("%+v", r)
	}
	mu.Lock()
	defer mu.Unlock()
	adapted := 0
	for _, a := range lines {
		if a.What == "adapt" && a.Limit == 6 && a.Who == "worker" {
			adapted++
		}
	}
	if adapted != 1 {
		t.Errorf("%d lines about the change, want one: %+v", adapted, lines)
	}
}
