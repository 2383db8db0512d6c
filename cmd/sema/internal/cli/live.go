package cli

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"sema"
	"sema/engine"
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
	ctx   context.Context
	began time.Time
	ticks <-chan time.Time
	timer *time.Ticker

	looks  chan sema.State // what a look at the engine found
	look   sync.WaitGroup
	cancel context.CancelFunc
	next   time.Time // of the next look
	state  sema.State
}

func (w *watch) newLive(ctx context.Context, began time.Time) *live {
	l := &live{statusLine: w.newStatusLine(), w: w, began: began}
	if l.file == nil {
		return l
	}
	l.looks = make(chan sema.State, 1)
	l.ctx, l.cancel = context.WithCancel(ctx)
	l.timer = time.NewTicker(liveEvery)
	l.ticks = l.timer.C
	return l
}

// tick draws, and now and then has a look at the engine: about as often as a
// waiter asks anyway.
func (l *live) tick() {
	select {
	case l.state = <-l.looks:
	default:
	}
	if now := time.Now(); !now.Before(l.next) {
		l.next = now.Add(max(l.w.flags.lease/6, 2*time.Second))
		l.look.Go(func() {
			ctx, cancel := context.WithTimeout(l.ctx, 2*time.Second)
			defer cancel()
			if st, err := l.w.sem.State(ctx); err == nil {
				select {
				case l.looks <- st:
				default:
				}
			}
		})
	}
	l.draw()
}

func (l *live) draw() {
	if l.file != nil && time.Since(l.began) >= liveAfter {
		l.show(l.text())
	}
}

func (l *live) text() string {
	var b strings.Builder
	fmt.Fprintf(&b, "sema: waiting %s for %s", time.Since(l.began).Round(time.Second), l.w.name)
	if ahead := l.w.ahead.Load(); ahead >= 0 {
		fmt.Fprintf(&b, ", position %d%s", ahead+1, l.w.ofKey())
	}
	if l.state.Limit > 0 {
		fmt.Fprintf(&b, ", %d of %d held by ", l.state.Used, l.state.Limit)
		for i, h := range view.ByToken(l.state.Holders) {
			if i > 0 {
				b.WriteString(", ")
			}
			fmt.Fprintf(&b, "%s@%s", shortLabel(h.Client), h.Client.Host)
		}
	}
	return b.String()
}

// shortLabel is what fits several times into a line.
func shortLabel(c engine.Client) string {
	if c.Label == "" {
		return fmt.Sprint(c.PID)
	}
	return printable(c.Label, 20)
}

func (l *live) close() {
	if l.file == nil {
		return
	}
	l.clear()
	l.timer.Stop()
	l.cancel()
	l.look.Wait()
}
