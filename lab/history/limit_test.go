package history

import "testing"

func TestLimit(t *testing.T) {
	resized := semaphore(func(s *Semaphore) { s.Resized = true })
	set := func(limit int, call, answer int64) func(*script) {
		return func(s *script) {
			s.add(call, Event{Kind: Limit, Worker: 1, Limit: limit})
			if answer != 0 {
				s.add(answer, Event{Kind: Limited, Worker: 1, Limit: limit})
			}
		}
	}
	two := func(s *script) {
		hold(1, 1, 10, 20, 500)(s)
		hold(2, 2, 10, 21, 500)(s)
	}
	try(t, PromiseLimit, []verdict{
		{name: "as many as the limit", record: write(two)},
		{name: "one more", record: write(two, hold(1, 3, 30, 40, 50)), breaks: 1},
		{name: "one more, and one in the instant of a release", record: write(two, hold(1, 3, 30, 31, 50), hold(2, 4, 60, 500, 510)), breaks: 2},
		{name: "one after the other", record: write(hold(1, 1, 10, 20, 30), hold(1, 2, 20, 31, 40), hold(2, 3, 20, 41, 50))},
		{name: "too heavy together", record: write(hold(1, 1, 10, 20, 100, weight(2)), hold(2, 2, 30, 40, 50)), breaks: 1},
		{name: "not certain to be held", record: write(two, func(s *script) {
			s.add(30, Event{Kind: Call, Worker: 1, Op: 3, Weight: 1})
			s.add(40, Event{Kind: Got, Worker: 1, Op: 3, Token: 40})
			s.add(41, Event{Kind: Release, Worker: 1, Op: 3})
			s.add(42, Event{Kind: Released, Worker: 1, Op: 3})
		})},
		{name: "a server that forgets", record: write(two, hold(1, 3, 30, 40, 50), fault(25, 26, excusesLimit)), breaks: 1, excused: 1},
		{name: "another fault", record: write(two, hold(1, 3, 30, 40, 50), fault(25, 26)), breaks: 1},
		{name: "a lease after a server that forgot", record: write(fault(25, 26, excusesLimit),
			hold(1, 1, 3100, 3110, 3500), hold(1, 2, 3100, 3110, 3500), hold(1, 3, 3100, 3110, 3500)), breaks: 1},

		{name: "as many as the cap", record: write(keys(1), hold(1, 1, 10, 20, 500, key("a")), hold(2, 2, 10, 21, 500, key("b")))},
		{name: "more than the cap", record: write(keys(1), hold(1, 1, 10, 20, 500, key("a")), hold(2, 2, 10, 21, 500, key("a"))), breaks: 1},
		{name: "more than the cap of none", record: write(keys(1), hold(1, 1, 10, 20, 500), hold(2, 2, 10, 21, 500))},
		{name: "more than the cap, by a server that forgot", record: write(keys(1), hold(1, 1, 10, 20, 500, key("a")),
			hold(2, 2, 10, 21, 500, key("a")), fault(5, 26, excusesLimit)), breaks: 1, excused: 1},

		{name: "more than the cap, long after a server forgot", record: write(keys(1), fault(25, 26, excusesLimit),
			hold(1, 1, 4000, 4010, 4500, key("a")), hold(2, 2, 4000, 4011, 4500, key("a"))), breaks: 1},
		{name: "more than the cap, in place of which a server that forgot has an operator's limit", record: write(keys(1), set(2, 20, 28), fault(25, 26, excusesLimit),
			hold(1, 1, 4000, 4010, 4500, key("a")), hold(2, 2, 4000, 4011, 4500, key("a"))), breaks: 1, excused: 1},
		{name: "more than the cap, and an operator's limit long after a server forgot", record: write(keys(1), set(2, 2000, 2010), fault(25, 26, excusesLimit),
			hold(1, 1, 4000, 4010, 4500, key("a")), hold(2, 2, 4000, 4011, 4500, key("a"))), breaks: 1},

		{name: "slots of their own", record: write(hold(1, 1, 10, 20, 30, token(7, 1)), hold(2, 2, 15, 25, 60, token(8, 0)))},
		{name: "a slot twice at once", record: write(hold(1, 1, 10, 20, 30, token(7, 1)), hold(2, 2, 15, 25, 60, token(8, 1))), breaks: 1},

		{name: "a raised limit", record: write(resized, set(3, 1, 5), two, hold(1, 3, 30, 40, 50))},
		{name: "a limit that may be raised", record: write(resized, set(3, 1, 0), two, hold(1, 3, 30, 40, 50))},
		{name: "more than the raised limit", record: write(resized, set(3, 1, 5), two, hold(1, 3, 30, 40, 50, weight(2))), breaks: 1},
		{name: "held beyond a shrunk limit", record: write(resized, two, set(1, 100, 110))},
		{
			name: "granted after a shrink", breaks: 1,
			record: write(resized, set(1, 100, 110), hold(1, 1, 4000, 4010, 4500), hold(2, 2, 4000, 4010, 4500)),
		},
		{
			name:   "a shrink that the server forgot",
			record: write(resized, set(1, 100, 110), fault(2000, 2100, excusesLimit), hold(1, 1, 4000, 4010, 4500), hold(2, 2, 4000, 4010, 4500)),
		},
	})
}
