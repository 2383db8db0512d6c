package history

import (
	"testing"
	"time"
)

// A caller of key a waits from 10 ms to 100 ms, while one of key b holds again and again,
// each time granted at the beginning.
func TestTurns(t *testing.T) {
	shared := func(f func(*Semaphore)) func(*script) {
		return func(s *script) {
			keys(0)(s)
			s.Clock = 5000 * milli
			if f != nil {
				f(&s.Semaphores[0])
			}
		}
	}
	granted := func(at int64) func(*Event) { return token((at+5000)*1000, -1) }
	permit := func(id string) func(*Event) {
		return func(e *Event) {
			if e.Kind == Got {
				e.Permit = id
			}
		}
	}
	waits := func(s *script) {
		hold(1, 1, 5, 100, 110, key("a"), granted(99), permit("a"))(s)
		queued(1, 1, 10)(s)
	}
	b := func(op, call, at, release int64, more ...func(*Event)) func(*script) {
		return hold(2, op, call, at+1, release, append([]func(*Event){key("b"), granted(at), permit(string(rune('a' + op)))}, more...)...)
	}
	once, again := b(2, 4, 20, 30), b(3, 4, 50, 60)
	rules := func(r map[string]Rule) func(*script) { return shared(func(s *Semaphore) { s.Rules = r }) }
	try(t, PromiseTurn, []verdict{
		{name: "once", record: write(shared(nil), waits, once)},
		{name: "twice", record: write(shared(nil), waits, once, again), breaks: 1},
		{name: "once each", record: write(shared(nil), waits, once, hold(2, 3, 4, 51, 60, key("c"), granted(50)))},
		{name: "twice, once before it is known to wait", record: write(shared(nil), waits, once, b(3, 1, 9, 15))},
		{name: "twice, with twice the share", record: write(rules(map[string]Rule{"b": {Share: 200}}), waits, once, again)},
		{name: "twice, and the one that waits has twice the share", record: write(rules(map[string]Rule{"a": {Share: 200}}), waits, once, again), breaks: 1},
		{name: "twice, and what waits is twice as heavy", record: write(shared(nil), func(s *script) {
			hold(1, 1, 5, 100, 110, key("a"), granted(99), permit("a"), weight(2))(s)
			queued(1, 1, 10)(s)
		}, once, again)},
		{name: "twice, and what waits is above its cap", record: write(rules(map[string]Rule{"a": {Cap: 1}}), waits, once, again,
			hold(2, 4, 1, 3, 95, key("a"), granted(2), permit("x")))},
		{name: "twice, while the one that waits holds more", record: write(shared(func(s *Semaphore) { s.Limit = 3 }), waits, once, again,
			hold(2, 4, 1, 3, 95, key("a"), granted(2), permit("x")))},
		{name: "twice, in two parts of a wait", record: write(shared(nil), waits, once, again,
			hold(2, 4, 1, 3, 40, key("a"), granted(2), permit("x")))},
		{name: "twice, and others of its key wait in its process", record: write(shared(nil), waits, once, again, hold(1, 4, 6, 101, 105, key("a"), granted(100), permit("x")))},
		{name: "twice, once within a process that cannot know", record: write(shared(nil), waits, b(2, 4, 19, 20), b(3, 4, 20, 60, permit("c")))},
		{name: "without the server's clock", record: write(shared(nil), waits, once, again, func(s *script) { s.Clock = 0 })},
		{name: "with another clock", record: write(shared(nil), waits, func(s *script) { s.Clock += int64(time.Second) }), breaks: 1},
		{name: "beside a fault", record: write(shared(nil), waits, once, again, fault(5, 15)), breaks: 1, excused: 1},
	})
	got := write(shared(nil), waits, once, again).Turns(0)
	if want := (Turns{Waits: 1, Passed: 2, Most: 2, Allowed: 1, Breaches: 1}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
}

func TestClock(t *testing.T) {
	before := time.Now().UnixNano()
	if at := Now() + Clock(); at < before-milli || at > time.Now().UnixNano()+milli {
		t.Errorf("now is %v away from the time of day", time.Duration(at-before))
	}
}
