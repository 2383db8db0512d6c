package top

import (
	"context"
	"sync"
	"time"

	tea "charm.land/bubbletea/v2"

	"sema"
	"sema/internal/view"
	"sema/watch"
)

// callTime bounds a look, and what an operator asks for.
const callTime = 10 * time.Second

// subject is what the view shows: a page of the list, or one semaphore.
type subject struct {
	number int    // of the subject: what was found of an earlier one is of no use
	name   string // "": the list
	query  watch.Query
}

// page is what was found of a subject.
type page struct {
	subject subject
	list    []watch.Summary
	total   int
	state   view.Look
	keys    []view.Key // of the state, each followed by those below it
	err     error
}

// done is what came of an operator's word.
type done struct {
	what string
	err  error
}

// feed looks at the engine for the view, one look at a time.
type feed struct {
	ctx      context.Context
	cancel   context.CancelFunc
	engine   sema.Engine
	watcher  *watch.Watcher
	every    time.Duration
	subjects chan subject // the last one counts
	send     func(tea.Msg)
	running  sync.WaitGroup
}

func newFeed(ctx context.Context, e sema.Engine, w *watch.Watcher, o Options) *feed {
	f := &feed{engine: e, watcher: w, every: o.Every, subjects: make(chan subject, 1)}
	f.ctx, f.cancel = context.WithCancel(ctx)
	return f
}

// start has send told what each look found, and what came of each act.
func (f *feed) start(send func(tea.Msg)) {
	f.send = send
	f.running.Go(func() {
		ticks := time.NewTicker(f.every)
		defer ticks.Stop()
		var want subject
		select {
		case want = <-f.subjects:
		case <-f.ctx.Done():
		}
		for f.ctx.Err() == nil {
			send(f.look(want))
			select {
			case want = <-f.subjects:
			case <-ticks.C:
			case <-f.ctx.Done():
			}
		}
	})
}

// stop ends the looks and all that operators asked for, and waits for that.
func (f *feed) stop() {
	f.cancel()
	f.running.Wait()
}

// want sets what the feed reads from now on. It is called by one goroutine.
func (f *feed) want(w subject) {
	select {
	case <-f.subjects:
	default:
	}
	f.subjects <- w
}

func (f *feed) look(w subject) page {
	ctx, cancel := context.WithTimeout(f.ctx, callTime)
	defer cancel()
	p := page{subject: w}
	if w.name != "" {
		st, err := f.watcher.State(ctx, w.name)
		st.Holders = view.ByToken(st.Holders) // lines that change places cannot be read
		p.state, p.err = view.LookAt(st), err
		p.keys = view.Tree(p.state.Rows(), st.Caps)
		return p
	}
	p.list, p.total, p.err = f.watcher.Summaries(ctx, w.query)
	return p
}

// act carries out an operator's word about a semaphore, and tells what came of
// it.
func (f *feed) act(name, what string, do func(context.Context, *sema.Operator) error) {
	f.running.Go(func() {
		ctx, cancel := context.WithTimeout(f.ctx, callTime)
		defer cancel()
		o, err := sema.Operate(f.engine, name)
		if err == nil {
			err = do(ctx, o)
			_ = o.Close() // the answer is there
		}
		f.send(done{what, err})
	})
}
