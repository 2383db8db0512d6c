package redisson

import (
	"fmt"
	"testing"
	"time"

	"sema/internal/fixture/expect"
	"sema/internal/fixture/redistest"
)

// waiting adds waiters of the given needs and takes the signal that each gets
// when it is added.
func waiting(t *testing.T, d *dispatcher, channel string, needs ...int) []*waiter {
	t.Helper()
	var all []*waiter
	for _, n := range needs {
		w, err := d.add(channel, false, n, false)
		expect.OK(t, err)
		select { // for the first when the subscription stands, for the others at once
		case <-w.wake:
		case <-time.After(10 * time.Second):
			t.Fatal("no signal for a new waiter")
		}
		all = append(all, w)
	}
	return all
}

// woken takes the signals and returns the numbers of the waiters that had one.
func woken(all []*waiter) string {
	s := ""
	for i, w := range all {
		select {
		case <-w.wake:
			s += fmt.Sprint(i)
		default:
		}
	}
	return s
}

// Each event wakes the right waiters. The pitfalls: "the wake-up count is in
// threads, not permits", "every release wakes every waiter" and "an abandoned
// waiter eats a permit".
func TestWhoIsWoken(t *testing.T) {
	t.Parallel()
	c, err := New(redistest.Start(t).Client(), &Options{Poll: time.Hour})
	expect.OK(t, err)
	defer func() { _ = c.Close() }()
	d := c.dispatcher
	for i, step := range []struct {
		what  string
		needs []int
		event func(all []*waiter)
		want  string
	}{
		{"one permit, the first needs five", []int{5, 1, 1}, func([]*waiter) { d.Message("0", "1") }, "01"},
		{"two permits for ones", []int{1, 1, 1, 1}, func([]*waiter) { d.Message("1", "2") }, "01"},
		{"a message that names no permits", []int{1, 1}, func([]*waiter) { d.Message("2", "0") }, "0"},
		{"a waiter found three and needs five", []int{5, 2, 4, 1}, func(all []*waiter) {
			d.attemptFailed(all[0], attempt{available: 3, next: -1})
		}, "13"},
		{"a waiter found none", []int{1, 1}, func(all []*waiter) {
			d.attemptFailed(all[0], attempt{available: 0, next: -1})
		}, ""},
		{"a waiter was granted its permits and left two", []int{1, 3, 2}, func(all []*waiter) {
			d.remove(all[0], 2)
		}, "2"},
		{"a waiter leaves without following its signal", []int{1, 1, 1}, func(all []*waiter) {
			all[0].signal()
			d.remove(all[0], 0)
		}, "1"},
		{"a waiter leaves without a signal", []int{1, 1}, func(all []*waiter) { d.remove(all[0], 0) }, ""},
		{"someone else's message", []int{1, 1}, func([]*waiter) { d.Message("no such", "9") }, ""},
	} {
		all := waiting(t, d, fmt.Sprint(i), step.needs...)
		step.event(all)
		if got := woken(all); got != step.want {
			t.Errorf("%s: woke %q; want %q", step.what, got, step.want)
		}
	}
}
