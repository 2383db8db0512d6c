package watchdog

import (
	"context"
	"runtime"
	"sync"
	"time"
)

// longest bounds how long a process that is always late goes on waiting.
const longest = 3 * time.Second

// looks is how often a wait looks at the clock, at the most. Each look costs processor time: a thousand
// processes that wait would starve each other by looking each Tick.
const looks = 16

// Within returns a context that ends with parent, or when this process has been running for d: then there
// was no answer. It looks at the clock in intervals. An interval that ended late by more than a
// Tick does not count, because the answer may have been late for the same reason, and the next ones are
// twice as long. After three seconds, or after d if that is longer, the context ends in any case.
func Within(parent context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithTimeout(parent, max(d, longest))
	w := newWaiting(d, time.Now())
	w.ctx, w.cancel = ctx, cancel
	w.mu.Lock()
	defer w.mu.Unlock()
	w.timer = time.AfterFunc(w.interval(), w.tick)
	return ctx, w.stop
}

type waiting struct {
	ctx    context.Context
	cancel context.CancelFunc

	mu     sync.Mutex
	timer  *time.Timer
	every  time.Duration // between two looks at the clock
	left   time.Duration
	before time.Time // when it last looked at the clock
}

func newWaiting(d time.Duration, now time.Time) *waiting {
	return &waiting{every: max(Tick, d/looks), left: d, before: now}
}

func (w *waiting) tick() {
	runtime.Gosched() // a timer's goroutine runs first, and one that reads an answer may be behind all others
	w.mu.Lock()
	defer w.mu.Unlock()
	w.count(time.Now())
	if w.left <= 0 {
		w.cancel()
	} else if w.ctx.Err() == nil {
		w.timer.Reset(w.interval())
	}
}

// interval is the time to the next look at the clock.
func (w *waiting) interval() time.Duration { return min(w.every, w.left) }

// count counts the interval that ends now. One that ended late does not count, and the next one is twice as long, also if less
// was left: a short rest would be late again, and again.
func (w *waiting) count(now time.Time) {
	if passed := now.Sub(w.before); passed <= w.interval()+Tick {
		w.left -= passed
	} else {
		w.every *= 2
		w.left = max(w.left, w.every)
	}
	w.before = now
}

func (w *waiting) stop() {
	w.cancel()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.timer.Stop()
}
