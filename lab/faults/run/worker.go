package main

import (
	"io"
	"math/rand/v2"
	"os"
	"runtime"
	"runtime/pprof"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"sema"
	"sema/engine"
	"sema/internal/fixture/child"
	"sema/internal/fixture/history"
	"sema/internal/watchdog"
	"sema/lab/faults/ground"
)

// job is what a worker is to do.
type job struct {
	ID         int                 `json:"id"`
	Site       int                 `json:"site"`
	Link       ground.Link         `json:"link"`
	Semaphores []history.Semaphore `json:"semaphores"`
	Goroutines int                 `json:"goroutines"`
	Seed       uint64              `json:"seed"`
	Resizes    bool                `json:"resizes,omitempty"` // calls SetLimit
	Planted    string              `json:"planted,omitempty"` // the bug that it has
}

// orderExit is what the runner writes to a worker that is to end at once.
const orderExit = "exit"

// worker is a process of a round.
type worker struct {
	job
	out     io.Writer
	ops     atomic.Int64
	stopped chan struct{}
}

// play is what a worker does, until it is told to stop.
func (j job) play() error {
	w := &worker{job: j, out: os.Stdout, stopped: make(chan struct{})}
	go func() {
		for {
			order, err := child.Order()
			if err != nil {
				close(w.stopped)
				return
			}
			if order == orderExit {
				os.Exit(0)
			}
		}
	}()
	watchdog.Watch(func(end time.Time, span time.Duration) { w.tell(history.Stalled(w.ID, end, span)) })
	return w.run()
}

// tell writes an event down, in one write: what was said stays said when the
// process is killed.
func (w *worker) tell(e history.Event) {
	e.Worker = w.ID
	_, _ = w.out.Write(e.Line()) // without the runner nobody reads it
}

func (w *worker) run() error {
	before := runtime.NumGoroutine()
	w.tell(history.Event{At: history.Now(), Kind: history.Began, Count: before})
	lease := w.Semaphores[0].Lease
	for _, s := range w.Semaphores {
		lease = min(lease, s.Lease)
	}
	at, err := w.Link.Open(lease)
	if err != nil {
		return err
	}
	handles := make([]*handle, len(w.Semaphores))
	for i, s := range w.Semaphores {
		if handles[i], err = w.handle(at, i, s); err != nil {
			return err
		}
	}
	var all sync.WaitGroup
	for i := range w.Goroutines {
		random := rand.New(rand.NewPCG(w.Seed, uint64(i)))
		all.Go(func() { w.load(handles, random, i == 0) })
	}
	if w.Resizes {
		all.Go(func() { w.resize(handles, rand.New(rand.NewPCG(w.Seed, 1<<32))) })
	}
	<-w.stopped
	w.finish(handles, &all, lease)
	if err := at.Close(); err != nil {
		return err
	}
	after, text := goroutines(before)
	w.tell(history.Event{At: history.Now(), Kind: history.Ended, Count: after, Text: text})
	return nil
}

// finish waits for those at work, a lease or so, and closes everything.
func (w *worker) finish(handles []*handle, all *sync.WaitGroup, lease time.Duration) {
	ready := make(chan struct{})
	go func() { all.Wait(); close(ready) }()
	select {
	case <-ready:
	case <-time.After(2 * lease):
	}
	for i, h := range handles {
		w.tell(history.Event{At: history.Now(), Kind: history.Closing, Sem: i})
		err := h.close()
		e := history.Event{At: history.Now(), Kind: history.Closed, Sem: i}
		e.Error, e.Text = classify(err)
		w.tell(e)
	}
	<-ready
}

// goroutines is how many run, once there are no more than most, or after a
// while; and where they are, if there are more.
func goroutines(most int) (n int, where string) {
	for range 200 {
		if n = runtime.NumGoroutine(); n <= most {
			return n, ""
		}
		time.Sleep(10 * time.Millisecond)
	}
	var b strings.Builder
	_ = pprof.Lookup("goroutine").WriteTo(&b, 1)
	return n, b.String()
}

// options are those of a semaphore as its description says.
func semaphoreOptions(s history.Semaphore) *sema.Options {
	o := &sema.Options{Lease: s.Lease, Keep: s.Keep, Unfair: s.Unfair, Slots: s.Slots}
	copy(o.Caps[:], s.Caps)
	amounts := map[string]engine.Amount{}
	for pool, n := range s.Pools {
		if amounts[pool] = (engine.Amount{N: n}); s.Rates[pool] > 0 {
			amounts[pool] = engine.Amount{N: n, Back: n, Per: s.Rates[pool]}
		}
	}
	o.Pools, _ = engine.PoolsOf(amounts, 1) // the plan keeps the rules
	return o
}
