package history

import (
	"testing"
	"time"
)

func TestWakeUp(t *testing.T) {
	// Somebody waits from 1000 to 5000. A sixth of the lease and a second are 1.5 s,
	// and that the grant was not known at once explains 750 ms of it.
	waits := func(s *script) { hold(1, 1, 999, 5000, 5010)(s); queued(1, 1, 1000)(s) }
	holds := func(op, got, release int64) func(*script) { return hold(2, op, got-1, got, release) }
	try(t, PromiseWakeUp, []verdict{
		{name: "beside free weight", record: write(waits), breaks: 1},
		{name: "not for long", record: write(hold(1, 1, 999, 3200, 3210), queued(1, 1, 1000))},
		{name: "one permit held, one free", record: write(holds(10, 900, 5000), waits), breaks: 1},
		{name: "all held", record: write(holds(10, 900, 4900), holds(11, 900, 4900), waits)},
		{name: "heavier than what is free", record: write(holds(10, 900, 4900), hold(1, 1, 999, 5000, 5010, weight(2)), queued(1, 1, 1000))},
		{name: "behind one that is heavier", record: write(holds(10, 900, 4900), hold(1, 1, 999, 5000, 5010, weight(2)), queued(1, 1, 1000), hold(1, 2, 999, 5020, 5030), queued(1, 2, 1001))},
		{name: "at the cap of its key", record: write(keys(1), hold(2, 10, 899, 900, 4900, key("a")), hold(1, 1, 999, 5000, 5010, key("a")), queued(1, 1, 1000))},
		{name: "beside another key at its cap", record: write(keys(1), hold(2, 10, 899, 900, 4900, key("b")), hold(1, 1, 999, 5000, 5010, key("a")), queued(1, 1, 1000)), breaks: 1},
		{name: "without end, killed", record: write(event(999, Event{Kind: Call, Worker: 1, Op: 1, Weight: 1}), queued(1, 1, 1000), func(s *script) { s.Workers[0].Gone = 5000 * milli }), breaks: 1},
		{name: "after a fault", record: write(waits, fault(500, 900))},
		{name: "long after a fault", record: write(waits, fault(10, 11), semaphore(func(s *Semaphore) { s.Lease = time.Second })), breaks: 1},
		{name: "while it stands still", record: write(waits, event(3500, Event{Kind: Stall, Worker: 1, Span: 2000 * milli}))},
		{
			name: "what a killed holder may have",
			record: write(waits, func(s *script) {
				for op := range int64(2) {
					s.add(900, Event{Kind: Call, Worker: 2, Op: 10 + op, Weight: 1})
					s.add(901, Event{Kind: Got, Worker: 2, Op: 10 + op, Token: 901 + op, Held: 901})
				}
				s.Workers[1].Gone = 950 * milli
			}),
		},
	})
}
