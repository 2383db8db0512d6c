package history

import "testing"

func TestContexts(t *testing.T) {
	closes := func(at, done int64) func(*script) {
		return func(s *script) {
			s.add(at, Event{Kind: Closing, Worker: 1})
			s.add(done, Event{Kind: Closed, Worker: 1})
		}
	}
	release := func(at, done int64) func(*script) {
		return func(s *script) {
			hold(1, 1, 10, 20, at)(s)
			s.Events[len(s.Events)-1].At = done * milli
		}
	}
	try(t, PromiseContexts, []verdict{
		{name: "in time", record: write(wait(1, 1, 10, 300, 500, ErrContext))},
		{name: "late", record: write(wait(1, 1, 10, 300, 600, ErrContext)), breaks: 1},
		{name: "late under a fault", record: write(wait(1, 1, 10, 300, 600, ErrContext), fault(5, 900)), breaks: 1},
		{name: "late after a stall", record: write(wait(1, 1, 10, 300, 600, ErrContext), event(550, Event{Kind: Stall, Worker: 1, Span: 100 * milli}))},
		{name: "late, and another stalled", record: write(wait(1, 1, 10, 300, 600, ErrContext), event(550, Event{Kind: Stall, Worker: 2, Span: 100 * milli})), breaks: 1},
		{name: "late, and it was stopped", record: write(wait(1, 1, 10, 300, 600, ErrContext), fault(5, 400, hitsWorker1))},
		{name: "granted late", record: write(hold(1, 1, 10, 600, 610, func(e *Event) {
			if e.Kind == Call {
				e.Until = 300 * milli
			}
		})), breaks: 1},
		{name: "no end", record: write(hold(1, 1, 10, 600, 610))},
		{name: "Release in time", record: write(release(100, 1200))},
		{name: "Release late", record: write(release(100, 1500)), breaks: 1},
		{name: "Close in time", record: write(closes(100, 3500))},
		{name: "Close late", record: write(closes(100, 3700)), breaks: 1},
	})
}

func TestGoroutinesThatStay(t *testing.T) {
	ends := func(n int) func(*script) { return event(900, Event{Kind: Ended, Worker: 1, Count: n}) }
	try(t, PromiseLeak, []verdict{
		{name: "none", record: write(ends(5))},
		{name: "one", record: write(ends(6)), breaks: 1},
	})
}
