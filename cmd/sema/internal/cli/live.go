package cli

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"sema"
	"sema/engine"
	"sema/internal/view"
)

const (
	liveAfter = time.Second // shorter waits show nothing
	liveEvery = time.Second // the time is drawn anew this often
)

// live says how a wait goes: on a terminal in a line that is drawn anew, elsewhere in a line of its own when something has
// changed, and each interval. All methods are for the one goroutine that waits.
type live struct {
	*statusLine
	w     *watch
	began time.Time
	ticks <-chan time.Time // nil: it says nothing

	said   string // without times, off a terminal
	saidAt time.Time

	ctx    context.Context // of the looks at the engine
	cancel context.CancelFunc
	look   sync.WaitGroup
	next   time.Time                  // of the next look
	state  atomic.Pointer[sema.State] // what the last one found
}

func (w *watch) newLive(ctx context.Context, began time.Time) *live {
	l := &live{statusLine: w.newStatusLine(), w: w, began: began}
	l.ctx, l.cancel = context.WithCancel(ctx)
	if w.flags.note > 0 {
		l.ticks = time.Tick(liveEvery)
	}
	return l
}

// tick draws, and now and then has a look at the engine: about as often as a
// waiter asks anyway.
func (l *live) tick() {
	if now := time.Now(); !now.Before(l.next) {
		l.next = now.Add(max(l.w.flags.lease/6, 2*time.Second))
		l.look.Go(func() {
			ctx, cancel := context.WithTimeout(l.ctx, 2*time.Second)
			defer cancel()
			if st, err := l.w.sem.State(ctx); err == nil {
				l.state.Store(&st)
				l.w.redraw()
			}
		})
	}
	l.draw()
}

func (l *live) draw() {
	now := time.Now()
	switch {
	case l.ticks == nil || now.Sub(l.began) < liveAfter:
	case l.file != nil:
		l.show("sema: " + l.text(true))
	case l.state.Load() != nil && now.Sub(l.saidAt) >= liveEvery:
		if what := l.text(false); what != l.said || now.Sub(l.saidAt) >= l.w.flags.note {
			l.said, l.saidAt = what, now
			l.w.say("%s", l.text(true))
		}
	}
}

// text is what the wait is for, with times or without.
func (l *live) text(times bool) string {
	var b strings.Builder
	b.WriteString("waits for " + l.w.name)
	if times {
		b.Reset()
		fmt.Fprintf(&b, "has waited %s for %s", time.Since(l.began).Round(time.Second), l.w.name)
	}
	if st := l.state.Load(); st != nil && st.Limit > 0 {
		ages := map[string]string{}
		for _, h := range st.Holders {
			if times {
				ages[h.ID] = " (" + view.Brief(h.Age) + ")"
			}
		}
		lacks := view.LookAt(*st).Lacks(l.w.flags.wish(), func(c engine.Client, id string) (name, where string) {
			return cmp.Or(printable(c.Label, 20), fmt.Sprint(c.PID)) + "@" + c.Host + ages[id], ""
		})
		if lacks != "" {
			b.WriteString(": " + lacks)
		}
	}
	switch ahead := l.w.ahead.Load(); {
	case ahead > 0:
		fmt.Fprintf(&b, ", %d before you%s", ahead, l.w.ofQueue())
	case ahead == 0:
		b.WriteString(", you are next" + l.w.ofQueue())
	}
	return b.String()
}

func (l *live) close() {
	l.clear()
	l.cancel()
	l.look.Wait()
}
