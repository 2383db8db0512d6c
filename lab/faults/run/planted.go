package main

import (
	"context"

	"sema/internal/fixture/history"
	"sema/internal/protocol"
)

// planted is a bug that workers can have, so that the judge is judged as well.
type planted struct {
	name    string
	promise string // that it breaks
	fault   string // what it needs to show, beside load; empty: whatever comes
	keys    bool   // it needs keys that share a semaphore

	// One of these is the bug: an engine's session that lies, or a semaphore that
	// is not sema's.
	step     func(s *lyingSession, ctx context.Context, c protocol.Call) (protocol.Reply, error)
	notify   func(s *lyingSession, n protocol.Notification, pass func(protocol.Notification))
	original func(h *handle, at *place, s history.Semaphore) error
}

// plantedBugs are all there are.
var plantedBugs = []planted{
	{name: "a permit from nowhere", promise: history.PromiseLimit, step: (*lyingSession).fromNowhere},
	{name: "a renewal that revives", promise: history.PromiseLimit, step: (*lyingSession).revives},
	{name: "the book's basic semaphore, clocks 100 ms apart", promise: history.PromiseLimit, original: basicOriginal},
	{name: "the book's fair semaphore, clocks 100 ms apart", promise: history.PromiseLimit, original: fairOriginal},
	{name: "a permit of another key", promise: history.PromiseLimit, keys: true, step: (*lyingSession).asksForOthers},
	{name: "a token of the process's own counting", promise: history.PromiseTokens, step: (*lyingSession).ownCount},
	{
		name: "a counter as token, across a restart", promise: history.PromiseTokens, fault: "server: kill -9, nothing on disk",
		step: (*lyingSession).counts, notify: (*lyingSession).countsGrants,
	},
	{name: "barging", promise: history.PromiseOrder, step: (*lyingSession).barges},
	{name: "newcomers that say they waited", promise: history.PromiseOrder, step: (*lyingSession).jumps},
	{name: "a push without state", promise: history.PromiseWakeUp, step: (*lyingSession).asksOnce, notify: (*lyingSession).losesGrants},
	{name: "a release in two steps, the second of which may not come", promise: history.PromiseWakeUp, step: (*lyingSession).losesReleases},
	{name: "a step that does not heed its context", promise: history.PromiseContexts, step: (*lyingSession).sleeps},
	{name: "a renewal that finds nothing", promise: history.PromiseTold, step: (*lyingSession).loses},
	{name: "an error that ends a wait", promise: history.PromiseTold, step: (*lyingSession).fails},
	{name: "a key that stays for ever", promise: history.PromiseLeak, step: (*lyingSession).persists},
	{name: "a goroutine for each call", promise: history.PromiseLeak, step: (*lyingSession).leaves},
}

// plantedBug is the one of that name, or nil.
func plantedBug(name string) *planted {
	for i := range plantedBugs {
		if plantedBugs[i].name == name {
			return &plantedBugs[i]
		}
	}
	return nil
}
