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
	"sema/internal/view"
)

const (
	liveAfter = time.Second // shorter waits show nothing
	liveEvery = time.Second // the time is drawn anew this often
)

// live is the line that shows on a terminal how a wait goes. All methods are
// for the one goroutine that waits.
type live struct {
	*statusLine
	w     *watch
	began time.Time
	ticks <-chan time.Time

	ctx    context.Context // of the looks at the engine
	cancel context.CancelFunc
	look   sync.WaitGroup
	next   time.Time                  // of the next look
	state  atomic.Pointer[sema.State] // what the last one found
}

func (w *watch) newLive(ctx context.Context, began time.Time) *live {
	l := &live{statusLine: w.newStatusLine(), w: w, began: began}
	l.ctx, l.cancel = context.WithCancel(ctx)
	if l.file != nil {
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
			}
		})
	}
	l.draw()
}

func (l *live) draw() {
	if time.Since(l.began) >= liveAfter {
		l.show(l.text())
	}
}

func (l *live) text() string {
	var b strings.Builder
	fmt.Fprintf(&b, "sema: waiting %s for %s", time.Since(l.began).Round(time.Second), l.w.name)
	if ahead := l.w.ahead.Load(); ahead >= 0 {
		fmt.Fprintf(&b, ", position %d%s", ahead+1, l.w.ofQueue())
	}
	if st := l.state.Load(); st != nil && st.Limit > 0 {
		var holders []string
		for _, h := range view.ByToken(st.Holders) {
			holders = append(holders, cmp.Or(printable(h.Client.Label, 20), fmt.Sprint(h.Client.PID))+"@"+h.Client.Host)
		}
		fmt.Fprintf(&b, ", %d of %d held by %s", st.Used, st.Limit, strings.Join(holders, ", "))
	}
	return b.String()
}

func (l *live) close() {
	l.clear()
	l.cancel()
	l.look.Wait()
}
