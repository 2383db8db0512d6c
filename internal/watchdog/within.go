package watchdog

import (
	"context"
	"runtime"
	"sync"
	"time"
)

// longest bounds how long a process that is always late goes on waiting.
const longest = 3 * time.Second

// Within returns a context that ends with parent, or when this process has been running for d: then there
// was no answer. It looks at the clock each Tick. An interval that ended late by more than a
// Tick does not count, because the answer may have been late for the same reason. After three seconds, or
// after d if that is longer, the context ends in any case.
func Within(parent context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithTimeout(parent, max(d, longest))
	w := &waiting{ctx: ctx, cancel: cancel, left: d, before: time.Now()}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.timer = time.AfterFunc(min(Tick, d), w.tick)
	return ctx, w.stop
}

type waiting struct {
	ctx    context.Context
	cancel context.CancelFunc

	mu     sync.Mutex
	timer  *time.Timer
	left   time.Duration
	before time.Time // when it last looked at the clock
}

func (w *waiting) tick() {
	runtime.Gosched() // a timer's goroutine runs first, and one that reads an answer may be behind all others
	w.mu.Lock()
	defer w.mu.Unlock()
	w.count(time.Now())
	if w.left <= 0 {
		w.cancel()
	} else if w.ctx.Err() == nil {
		w.timer.Reset(min(Tick, w.left))
	}
}

// count counts the interval that ends now, unless it ended late.
func (w *waiting) count(now time.Time) {
	passed := now.Sub(w.before)
	if passed <= min(Tick, w.left)+Tick {
		w.left -= passed
	}
	w.before = now
}

func (w *waiting) stop() {
	w.cancel()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.timer.Stop()
}
