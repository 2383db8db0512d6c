package history

import "testing"

func TestOrder(t *testing.T) {
	// A waits from 20 to 4000. One that came later has its permit at 1000,
	// another at 3000: it is passed over for 2 s, and a sixth of the lease and
	// 250 ms would be 750 ms.
	a := func(s *script) { hold(1, 1, 10, 4000, 4010)(s); queued(1, 1, 20)(s) }
	b := func(s *script) {
		hold(2, 10, 30, 1000, 1004)(s)
		hold(2, 11, 40, 3000, 3004)(s)
	}
	try(t, PromiseOrder, []verdict{
		{name: "passed over", record: write(busy, a, b), breaks: 1},
		{name: "passed over once", record: write(busy, a, hold(2, 10, 30, 1000, 1004))},
		{name: "for no longer than until it asks again", record: write(busy, a, hold(2, 10, 30, 1000, 1004), hold(2, 11, 40, 1450, 1460))},
		{name: "once, in a time without faults, by one that came long after it", record: write(busy, a, hold(2, 10, 400, 1000, 1004)), breaks: 1},
		{name: "once, by one that came long after it, around a fault", record: write(busy, a, hold(2, 10, 400, 1000, 1004), fault(2000, 2100, site1))},
		{name: "once, by one that came long after it, around a stall", record: write(busy, a, hold(2, 10, 400, 1000, 1004), event(500, Event{Kind: Stall, Worker: 2, Span: 200 * milli}))},
		{name: "by those who came before", record: write(busy, a, hold(2, 10, 15, 1000, 1004), hold(2, 11, 16, 3000, 3004))},
		{name: "by those who were granted later", record: write(busy, a, hold(2, 10, 30, 1000, 1004, token(4000_001, -1)), hold(2, 11, 40, 3000, 3004, token(4000_002, -1)))},
		{name: "by those of another key", record: write(busy, a, hold(2, 10, 30, 1000, 1004, key("b")), hold(2, 11, 40, 3000, 3004, key("b")))},
		{name: "unfair", record: write(busy, a, b, semaphore(func(s *Semaphore) { s.Unfair = true }))},
		{name: "passes", record: write(busy, a, b, semaphore(func(s *Semaphore) { s.Passes = 3 }))},
		{name: "while it is cut off", record: write(busy, a, b, fault(900, 2000, hitsWorker1))},
		{name: "while another site is cut off", record: write(busy, a, b, fault(900, 2000, site1)), breaks: 1},
		{name: "while the host stands still", record: write(busy, a, b, event(2500, Event{Kind: Stall, Worker: HostWorker, Span: 1400 * milli}))},
		{name: "while it stands still", record: write(busy, a, b, event(2500, Event{Kind: Stall, Worker: 1, Span: 1400 * milli}))},
		{name: "while another stands still", record: write(busy, a, b, event(2500, Event{Kind: Stall, Worker: 2, Span: 1400 * milli})), breaks: 1},
		{name: "by a server that forgot the queue", record: write(busy, a, b, fault(800, 801, excusesOrder)), breaks: 1, excused: 1},
		{name: "one that gave up", record: write(busy, wait(1, 1, 10, 4000, 4000, ErrContext), queued(1, 1, 20), b), breaks: 1},
		{
			name:   "one that was killed before",
			record: write(busy, event(10, Event{Kind: Call, Worker: 1, Op: 1, Weight: 1}), queued(1, 1, 20), b, func(s *script) { s.Workers[0].Gone = 1500 * milli }),
		},
	})
}

// busy has somebody hold one of the two all the time, and another one be held
// most of it, so that nobody waits beside free weight.
func busy(s *script) {
	hold(2, 1000, 0, 1, 4200)(s)
	for i := range int64(8) {
		if at := 5 + i*500; at < 4000 {
			hold(2, 1001+i, 1, at, at+400)(s)
		}
	}
}
