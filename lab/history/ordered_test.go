package history

import (
	"testing"
	"time"
)

// Four hold one after the other, two of them after a wait. Each kind of broken
// promise is planted once.
func TestOrdered(t *testing.T) {
	ordered := semaphore(func(s *Semaphore) { s.Ordered = true })
	late := semaphore(func(s *Semaphore) { s.Late = 5 * time.Microsecond })
	a, b := hold(1, 1, 1, 2, 10, token(1, 0)), hold(2, 2, 3, 4, 12, token(2, 1))
	c := func(got, until, tok int64) func(*script) {
		return func(s *script) {
			hold(1, 3, 5, got, until, weight(2), token(tok, 0))(s)
			queued(1, 3, 6)(s)
		}
	}
	d := func(tok int64) func(*script) {
		return func(s *script) {
			hold(2, 4, 7, 31, 35, token(tok, -1))(s)
			queued(2, 4, 8)(s)
		}
	}
	try(t, PromiseLimit, []verdict{
		{name: "good", record: write(ordered, a, b, c(13, 30, 3), d(4))},
		{name: "granted before a release", record: write(ordered, a, b, c(11, 30, 3), d(4)), breaks: 1},
		{name: "a lease that ended too early", record: write(ordered, a, b, c(13, 40, 3), d(4)), breaks: 1},
		{name: "a slot held twice", record: write(ordered, a, hold(2, 2, 3, 4, 12, token(2, 0)), c(13, 30, 3), d(4)), breaks: 1},
	})
	try(t, PromiseTokens, []verdict{
		{name: "a token that repeats", record: write(ordered, a, hold(2, 2, 1, 4, 12, token(1, 1))), breaks: 1},
		{name: "a token that repeats elsewhere, where permits pass on", record: write(ordered, late, a, hold(2, 2, 1, 4, 12, token(1, 1)))},
		{name: "a token that falls back", record: write(ordered, hold(1, 1, 1, 2, 10, token(2, 0)), hold(2, 2, 3, 4, 12, token(1, 1)), c(13, 30, 3), d(4)), breaks: 1},
	})
	try(t, PromiseOrder, []verdict{
		{name: "an overtaker", record: write(ordered, a, b, c(13, 30, 4), d(3)), breaks: 1},
		{name: "an overtaker that is not too late", record: write(ordered, late, a, b, c(13, 30, 7), d(3))},
		{name: "an overtaker that is too late", record: write(ordered, late, a, b, c(13, 30, 8), d(3)), breaks: 1},
		{name: "an overtaker that asked at the same time", record: write(ordered, a, b, c(13, 30, 4), hold(2, 4, 6, 31, 35, token(3, -1)))},
	})
}
