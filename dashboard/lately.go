package dashboard

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"sema/watch"
)

// remembered is how many events a page of a semaphore shows.
const remembered = 20

// diary is what happened to a semaphore while somebody had its page open.
type diary struct {
	began chan struct{} // closed when it sees what happens

	mu    sync.Mutex
	lines []diaryLine // the newest first
}

func newDiary() *diary { return &diary{began: make(chan struct{})} }

type diaryLine struct {
	Time time.Time
	Text string
	Who  string // a client's label, or its permit; in front of Text
}

// Clock is when it was seen, by the clock of this process.
func (l diaryLine) Clock() string { return l.Time.UTC().Format("15:04:05") }

// Stamp is the same for machines.
func (l diaryLine) Stamp() string { return l.Time.UTC().Format(time.RFC3339) }

// follow writes down what happens until ctx ends.
func (d *diary) follow(ctx context.Context, w *watch.Watcher, name string) {
	for e := range w.Events(ctx, watch.Filter{Name: name}) {
		if e.Kind == watch.Began {
			close(d.began)
		}
		line, ok := lineOf(e)
		if !ok {
			continue
		}
		d.mu.Lock()
		d.lines = append([]diaryLine{line}, d.lines[:min(len(d.lines), remembered-1)]...)
		d.mu.Unlock()
	}
}

// await returns when what happens from now on will be written down.
func (d *diary) await(ctx context.Context) {
	select {
	case <-d.began:
	case <-ctx.Done():
	}
}

func (d *diary) list() []diaryLine {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.lines)
}

// lineOf is an event in words.
func lineOf(e watch.Event) (line diaryLine, ok bool) {
	line = diaryLine{Time: e.Time, Who: e.Client.Label}
	if line.Who == "" {
		line.Who = e.Permit
	}
	switch e.Kind {
	case watch.Queued:
		line.Text = "waits"
	case watch.Granted:
		line.Text = "holds a permit"
		if e.Waited >= time.Second {
			line.Text += " after a wait of " + brief(e.Waited)
		}
	case watch.Released:
		line.Text = "has no permit any more, after " + brief(e.Held)
	case watch.Ended:
		line.Text = "has no permit any more, after " + brief(e.Held) + "; its lease may have ended"
	case watch.Left:
		line.Text = "left the queue after " + brief(e.Waited)
	case watch.Revoked:
		line.Text = "is to give its permit back"
	case watch.Limit:
		line.Text = fmt.Sprintf("the limit is %d", e.Limit)
		if e.Pinned {
			line.Text += ", set by an operator"
		}
	case watch.Paused:
		line.Text = "paused"
	case watch.Unpaused:
		line.Text = "not paused any more"
	case watch.Removed:
		line.Text = "nobody uses it any more"
	case watch.Missed:
		line.Text = count(e.Missed, "older event") + " went unseen"
	default:
		return line, false
	}
	return line, true
}
