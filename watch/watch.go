// Package watch observes the semaphores of any engine: holders, waiters and changes. It
// holds no permits and changes nothing.
//
//	w, err := watch.New(engine, nil)
//	defer w.Close()
//	page, total, err := w.Summaries(ctx, watch.Query{Order: "waiting", N: 20})
//	for e := range w.Events(ctx, watch.Filter{Name: "downloads"}) {
//		fmt.Println(e.Time, e.Kind, e.Permit, e.Client.Label)
//	}
//
// # What it sees
//
// Engines do not send events to observers, so a Watcher takes snapshots and compares them.
// Each snapshot is exact, because the engine makes it in one step. A Watcher misses what
// begins and ends between two snapshots, such as a permit that is held for less than
// Options.Interval. It also misses a permit that a process passes from one of its callers
// to another without a call to the engine. So counts of events are lower bounds. For exact
// counts, programs use sema.Observer.
//
// # What it costs
//
// A snapshot is one read of the engine. All listeners to a semaphore share one snapshot in
// each Interval. Some calls need all semaphores: a sort by another order than the name,
// listeners to many names, and followers. For those the Watcher looks at all semaphores in
// rounds, at most Options.Rate of them a second. Rounds begin with the first such call and
// end Options.Linger after the last.
package watch

import (
	"cmp"
	"container/list"
	"context"
	"sync"
	"time"

	"sema/engine"
	"sema/internal/protocol"
)

// Options of a Watcher. The zero value of each field is its default. Durations
// are 1 ms … 24 h, numbers 1 … 1,000,000 unless their field says otherwise.
type Options struct {
	// Interval is the time between two looks at a semaphore with listeners. Default 1 s.
	Interval time.Duration

	// Fresh is how old the answer to Recent and Summaries may be, so that many
	// callers share one look. Default half of the Interval.
	Fresh time.Duration

	// Rounds is the time between two rounds through all semaphores. Default 5 s. It
	// becomes longer if the Rate requires that. It is also at least ten times as long as
	// the listing of the names takes.
	Rounds time.Duration

	// Linger is how long rounds continue after the last call that needed them. Default
	// 10 min.
	Linger time.Duration

	// Rate is the most looks of a round in a second. Default 1000, range
	// 1 … 1,000,000,000.
	Rate int

	// Parallel is the most looks at the same time. Default 8, range 1 … 10,000.
	Parallel int

	// Open is the most sessions that stay open for a later look, not counting those of
	// semaphores with listeners. An idle session closes after a minute. Default 256.
	Open int

	// Buffer is how many events wait for a slow listener before the oldest are dropped.
	// Default 256.
	Buffer int

	// Timeout is the time limit of a look. Default 3 s.
	Timeout time.Duration
}

// maxTime is the longest of the Options' durations.
const maxTime = 24 * time.Hour

func (o Options) withDefaults() Options {
	o.Interval = cmp.Or(o.Interval, time.Second)
	o.Fresh = cmp.Or(o.Fresh, max(o.Interval/2, time.Millisecond))
	o.Rounds = cmp.Or(o.Rounds, 5*time.Second)
	o.Linger = cmp.Or(o.Linger, 10*time.Minute)
	o.Rate = cmp.Or(o.Rate, 1000)
	o.Parallel = cmp.Or(o.Parallel, 8)
	o.Open = cmp.Or(o.Open, 256)
	o.Buffer = cmp.Or(o.Buffer, 256)
	o.Timeout = cmp.Or(o.Timeout, 3*time.Second)
	return o
}

func (o Options) validate() error {
	last := func(what string, d time.Duration) error {
		return engine.ValidateRange("watch", "Options."+what, d, time.Millisecond, maxTime)
	}
	count := func(what string, n, most int) error {
		return engine.ValidateRange("watch", "Options."+what, n, 1, most)
	}
	return cmp.Or(
		last("Interval", o.Interval), last("Fresh", o.Fresh), last("Rounds", o.Rounds),
		last("Linger", o.Linger), last("Timeout", o.Timeout),
		count("Rate", o.Rate, 1_000_000_000), count("Parallel", o.Parallel, 10_000), count("Open", o.Open, 1_000_000), count("Buffer", o.Buffer, 1_000_000),
	)
}

// Watcher looks at the semaphores of one engine. Create it with New, share it,
// and close it. It is safe for concurrent use.
type Watcher struct {
	engine   protocol.Engine
	options  Options
	who      engine.Client
	ctx      context.Context // ends with Close
	cancel   context.CancelFunc
	parallel chan struct{} // has an element for each running look
	running  sync.WaitGroup

	mu         sync.Mutex
	closed     bool
	semaphores map[string]*watched
	open       *list.List // of semaphores with a session, in the order of their last look
	wide       map[*stream]struct{}
	followers  map[*func(Look)]bool // true: it needs rounds all the time
	reached    time.Time            // the end of the last look, or list, that succeeded
	rounds     rounds
	names      names
}

// New makes a Watcher for an engine. The caller closes the engine, after the Watcher. Nil
// options are the defaults. New does no I/O. It fails only on a nil engine or an option out
// of range, with an *engine.ArgumentError.
func New(e protocol.Engine, o *Options) (*Watcher, error) {
	if o == nil {
		o = &Options{}
	}
	options := o.withDefaults()
	if err := cmp.Or(protocol.Validate("watch", e), options.validate()); err != nil {
		return nil, err
	}
	w := &Watcher{
		engine: e, options: options, who: engine.Self("watch"),
		semaphores: map[string]*watched{}, open: list.New(), wide: map[*stream]struct{}{}, followers: map[*func(Look)]bool{},
	}
	w.parallel = make(chan struct{}, w.options.Parallel)
	w.ctx, w.cancel = context.WithCancel(context.Background())
	w.rounds.done, w.rounds.wake = make(chan struct{}), make(chan struct{}, 1)
	w.names.listLock = make(chan struct{}, 1)
	return w, nil
}

// Options returns the Watcher's options with the defaults filled in.
func (w *Watcher) Options() Options { return w.options }

// Close ends all streams and looks, and waits for them. The engine stays open.
// Further calls fail with engine.ErrClosed.
func (w *Watcher) Close() {
	w.mu.Lock()
	w.closed = true
	w.mu.Unlock()
	w.cancel()
	w.running.Wait()
	w.mu.Lock()
	defer w.mu.Unlock()
	for w.open.Len() > 0 {
		s := w.open.Front().Value.(*watched)
		w.unlist(s)
		_ = s.session.Close() // frees only local resources
		s.session = nil
	}
}

// enter begins a call that Close waits for. inner ends with ctx or the Watcher. If enter
// succeeds, the caller calls done at the end.
func (w *Watcher) enter(ctx context.Context) (inner context.Context, done func(), err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return nil, nil, engine.ErrClosed
	}
	w.running.Add(1)
	inner, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(w.ctx, cancel)
	return inner, func() { stop(); cancel(); w.running.Done() }, nil
}
