// Package watch looks at semaphores from outside, over any engine: who holds,
// who waits, and what changes. It holds no permits and changes nothing.
//
//	w, err := watch.New(engine, nil)
//	defer w.Close()
//	page, total, err := w.Summaries(ctx, watch.Query{Order: watch.ByWaiting, N: 20})
//	for e := range w.Events(ctx, watch.Filter{Name: "downloads"}) {
//		fmt.Println(e.Time, e.Kind, e.Permit, e.Client.Label)
//	}
//
// # What it sees
//
// Engines do not tell outsiders what happens, so a Watcher takes snapshots and
// compares them. Each snapshot is exact: the engine makes it in one step. A change
// that came and went between two of them is not seen: a permit that was held for
// less than Options.Interval may never show, nor one that a process passed from
// one of its callers to another without asking the engine. Counts of events
// are therefore lower bounds; for exact ones there is sema.Observer in the
// programs themselves.
//
// # What it costs
//
// One snapshot is one read of the engine. All that listen to one semaphore
// share one snapshot for each Interval. To sort by anything but the name,
// to hear of many names at once, and to follow all looks, all semaphores are
// looked at, round after round, at most Options.Rate of them a second. That
// begins when it is first asked for and ends when nobody has asked for
// Options.Linger.
package watch

import (
	"cmp"
	"container/list"
	"context"
	"sync"
	"time"

	"sema/engine"
)

// Options of a Watcher. The zero value of each field is its default. Durations
// are 1 ms … MaxTime, numbers 1 … 1,000,000 unless their field says otherwise.
type Options struct {
	// Interval is how often a semaphore is looked at that somebody listens to.
	// Default 1 s.
	Interval time.Duration

	// Fresh is how old the answer to Recent and Summaries may be, so that many
	// callers share one look. Default half of the Interval.
	Fresh time.Duration

	// Rounds is how often all semaphores are looked at. Default 5 s. A round
	// takes longer if the Rate demands it, and rounds are further apart if
	// listing the names takes long: that never takes more than a tenth of the time.
	Rounds time.Duration

	// Linger is how long the rounds go on after the last call that needed them.
	// Default 10 min.
	Linger time.Duration

	// Rate is how many semaphores a round looks at in a second, at most:
	// 1 … 1,000,000,000. Default 1000.
	Rate int

	// Parallel is how many looks are under way at the same time, at most: 1 … 10,000.
	// Default 8.
	Parallel int

	// Open is how many sessions stay open for the next look, at most, beside
	// those somebody listens to. Default 256. An idle one closes after a minute.
	Open int

	// Buffer is how many events a listener may be behind before it loses the
	// oldest. Default 256.
	Buffer int

	// Timeout bounds a look. Default 3 s.
	Timeout time.Duration
}

// MaxTime is the longest of the Options' durations.
const MaxTime = 24 * time.Hour

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
		return engine.ValidateRange("watch", "Options."+what, d, time.Millisecond, MaxTime)
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
	engine   engine.Engine
	options  Options
	who      engine.Client
	ctx      context.Context // ends with Close
	cancel   context.CancelFunc
	parallel chan struct{} // a place for each look under way
	running  sync.WaitGroup

	mu         sync.Mutex
	closed     bool
	semaphores map[string]*watched
	open       *list.List // of semaphores with a session, the one looked at longest ago first
	wide       map[*stream]struct{}
	followers  map[*follower]struct{}
	reached    time.Time // the end of the last look, or list, that succeeded
	rounds     rounds
	names      names
}

// New makes a Watcher over an engine, which stays the caller's to close, after
// the Watcher. A nil options means the defaults. It does no I/O, so it fails
// only on values out of range, with an *engine.ArgumentError.
func New(e engine.Engine, o *Options) (*Watcher, error) {
	if o == nil {
		o = &Options{}
	}
	options := o.withDefaults()
	if err := cmp.Or(engine.Validate("watch", e), options.validate()); err != nil {
		return nil, err
	}
	w := &Watcher{
		engine: e, options: options, who: engine.Self("watch"),
		semaphores: map[string]*watched{}, open: list.New(), wide: map[*stream]struct{}{}, followers: map[*follower]struct{}{},
	}
	w.parallel = make(chan struct{}, w.options.Parallel)
	w.ctx, w.cancel = context.WithCancel(context.Background())
	w.rounds.done, w.rounds.wake = make(chan struct{}), make(chan struct{}, 1)
	w.names.turn = make(chan struct{}, 1)
	return w, nil
}

// Options are those in force, defaults filled in.
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
		_ = s.session.Close() // it frees local things only
		s.session = nil
	}
}

// enter begins something that Close waits for. ctx then ends with the Watcher,
// too. Without an error, leave has to be called.
func (w *Watcher) enter(ctx context.Context) (inner context.Context, leave func(), err error) {
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
