package history

import "testing"

func TestTokens(t *testing.T) {
	one := semaphore(func(s *Semaphore) { s.Limit = 1 })
	permit := func(e *Event) {
		if e.Kind == Got {
			e.Permit = "p"
		}
	}
	try(t, PromiseTokens, []verdict{
		{name: "any order without slots", record: write(hold(1, 1, 10, 20, 30, token(7, -1)), hold(1, 2, 40, 50, 60, token(6, -1)))},
		{name: "twice in a slot", record: write(hold(1, 1, 10, 20, 30, token(7, 1)), hold(2, 2, 15, 35, 60, token(7, 1))), breaks: 1},
		{name: "twice under an id", record: write(hold(1, 1, 10, 20, 30, token(7, -1), permit), hold(2, 2, 15, 35, 60, token(7, -1), permit)), breaks: 1},
		{name: "in two slots at once", record: write(hold(1, 1, 10, 20, 30, token(7, 1)), hold(2, 2, 15, 25, 60, token(7, 0)))},
		{name: "smaller, with limit 1", record: write(one, hold(1, 1, 10, 20, 30, token(7, -1)), hold(2, 2, 40, 50, 60, token(6, -1))), breaks: 1},
		{name: "smaller in a slot", record: write(hold(1, 1, 10, 20, 30, token(7, 1)), hold(1, 2, 40, 50, 60, token(6, 1))), breaks: 1},
		{name: "smaller in another slot", record: write(hold(1, 1, 10, 20, 30, token(7, 1)), hold(1, 2, 40, 50, 60, token(6, 0)))},
		{name: "asked for at the same time", record: write(one, hold(1, 1, 10, 20, 30, token(7, -1)), hold(2, 2, 15, 50, 60, token(6, -1)))},
		{
			name: "a counter that a restart forgot, excused", breaks: 1, excused: 1,
			record: write(one, hold(1, 1, 10, 20, 30, token(7, -1)), fault(31, 39, excusesTokens), hold(2, 2, 40, 50, 60, token(1, -1))),
		},
		{
			name: "a counter that a restart forgot, not excused", breaks: 1,
			record: write(one, hold(1, 1, 10, 20, 30, token(7, -1)), fault(31, 39, excusesLimit), hold(2, 2, 40, 50, 60, token(1, -1))),
		},
	})
}
