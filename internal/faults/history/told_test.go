package history

import "testing"

func TestTold(t *testing.T) {
	isTry := func(e *Event) { e.Try = e.Kind == Call }
	lost := func(at int64) func(*script) {
		return func(s *script) {
			s.add(10, Event{Kind: Call, Worker: 1, Op: 1, Weight: 1})
			s.add(20, Event{Kind: Got, Worker: 1, Op: 1, Token: 20, Held: 20})
			s.add(at, Event{Kind: Lost, Worker: 1, Op: 1, Error: ErrLost})
			s.add(at+1, Event{Kind: Released, Worker: 1, Op: 1, Error: ErrLost})
		}
	}
	try(t, PromiseTold, []verdict{
		{name: "the context ended", record: write(wait(1, 1, 10, 300, 301, ErrContext))},
		{name: "the context had not ended", record: write(wait(1, 1, 10, 300, 200, ErrContext)), breaks: 1},
		{name: "there was none", record: write(wait(1, 1, 10, 0, 200, ErrContext)), breaks: 1},
		{name: "refused, and would have waited", record: write(wait(1, 1, 10, 0, 200, ErrRefused)), breaks: 1},
		{name: "refused", record: write(wait(1, 1, 10, 0, 20, ErrRefused, isTry))},
		{name: "lost instead of granted", record: write(wait(1, 1, 10, 0, 200, ErrLost), fault(15, 5000)), breaks: 1},
		{name: "closed", record: write(event(100, Event{Kind: Closing, Worker: 1}), wait(1, 1, 10, 0, 200, ErrClosed))},
		{name: "closed by nobody", record: write(wait(1, 1, 10, 0, 200, ErrClosed)), breaks: 1},
		{name: "too heavy", record: write(wait(1, 1, 10, 0, 20, ErrWeight, weight(3)))},
		{name: "not too heavy", record: write(wait(1, 1, 10, 0, 20, ErrWeight)), breaks: 1},

		{name: "out of reach for long", record: write(fault(5, 3100), wait(1, 1, 10, 0, 3010, ErrTemporary))},
		{name: "out of reach for a moment", record: write(fault(5, 100), wait(1, 1, 10, 0, 200, ErrTemporary)), breaks: 1},
		{name: "another site out of reach", record: write(fault(5, 3100, site1), wait(1, 1, 10, 0, 3010, ErrTemporary)), breaks: 1},
		{name: "waited through half a lease", record: write(fault(500, 1900), wait(1, 1, 10, 0, 2000, ErrTemporary), queued(1, 1, 20), busy), breaks: 1},
		{name: "waited while the host stood still", record: write(event(1900, Event{Kind: Stall, Worker: HostWorker, Span: 800 * milli}), wait(1, 1, 10, 0, 2000, ErrTemporary), queued(1, 1, 20), busy)},
		{name: "waited through a lease", record: write(fault(500, 3400), wait(1, 1, 10, 0, 3500, ErrTemporary), queued(1, 1, 20), busy)},
		{name: "refused by the engine", record: write(fault(5, 100), wait(1, 1, 10, 0, 50, ErrEngine))},
		{name: "refused by the engine without a fault", record: write(wait(1, 1, 10, 0, 50, ErrEngine)), breaks: 1},

		{name: "a permit is lost without a fault", record: write(lost(1500)), breaks: 1},
		{name: "a permit is lost by a fault", record: write(fault(100, 1400), lost(1500))},
		{name: "by an older fault", record: write(fault(100, 200), lost(4000)), breaks: 1},
		{name: "by a fault elsewhere", record: write(fault(100, 1400, site1), lost(1500)), breaks: 1},
		{name: "by a host that stood still", record: write(event(1400, Event{Kind: Stall, Worker: HostWorker, Span: 1200 * milli}), lost(1500))},
	})
}
