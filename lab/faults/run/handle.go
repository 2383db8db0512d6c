package main

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	"sema"
	"sema/engine"
	"sema/internal/fixture/history"
	"sema/lab/faults/ground"
)

// permit is what a holder has: a *sema.Permit, or what an original gives.
type permit interface {
	Err() error
	Release() error
	ID() string
	Token() int64
	Slot() int
}

// handle is a worker's access to one semaphore.
type handle struct {
	w        *worker
	sem      int
	about    history.Semaphore
	acquire  func(ctx context.Context, what wish) (permit, error)
	setLimit func(ctx context.Context, limit int) error
	close    func() error

	mu      sync.Mutex
	called  int64 // when the last acquisition began
	waiting []*operation
	holding map[holding]int64 // operations by what they hold
}

// wish is what an acquisition asks for.
type wish struct {
	key    string
	weight int
	takes  history.Pools
	try    bool
}

// operation is an acquisition that has not returned yet.
type operation struct {
	op, call int64
	queued   bool
}

type holding struct {
	permit string
	token  int64
}

// apart is how far apart a handle's acquisitions begin at least. What an
// observer is told of one that waits names no caller; when it came says which.
const apart = time.Millisecond

func (w *worker) handle(at *ground.Place, i int, s history.Semaphore) (*handle, error) {
	h := &handle{w: w, sem: i, about: s, holding: map[holding]int64{}}
	bug := plantedBug(w.Planted)
	if bug != nil && bug.original != nil {
		return h, h.original(at.RDB, bug)
	}
	o := semaphoreOptions(s)
	o.Observer = sema.Observer{Queued: h.queued, Lost: h.lost}
	e := sema.Engine(at)
	if bug != nil {
		e = &lyingEngine{Place: at, bug: bug, seed: w.Seed}
	}
	sem, err := sema.New(e, s.Name, s.Limit, o)
	if err != nil {
		return nil, err
	}
	h.acquire = func(ctx context.Context, what wish) (permit, error) {
		options := []sema.AcquireOption{sema.Weight(what.weight)}
		if what.key != "" {
			options = append(options, sema.For(strings.Split(what.key, history.Separator)...))
		}
		for pool, n := range what.takes {
			options = append(options, sema.Take(pool, n))
		}
		if what.try {
			options = append(options, sema.WaitAtMost(0))
		}
		p, err := sem.Acquire(ctx, options...)
		if err != nil {
			return nil, err
		}
		return p, nil
	}
	operator, err := sema.Operate(e, s.Name)
	if err != nil {
		return nil, err
	}
	h.setLimit = func(ctx context.Context, n int) error { return operator.Set(ctx, sema.Rule{Limit: n}) }
	h.close = func() error { return errors.Join(sem.Close(), operator.Close()) }
	return h, nil
}

// begin notes that an acquisition is about to be asked for. until is how long
// from now its context lives; 0: for ever.
func (h *handle) begin(what wish, until time.Duration) *operation {
	h.mu.Lock()
	defer h.mu.Unlock()
	if d := time.Duration(h.called + int64(apart) - history.Now()); d > 0 {
		time.Sleep(d)
	}
	o := &operation{op: h.w.ops.Add(1), call: history.Now()}
	h.called = o.call
	h.waiting = append(h.waiting, o)
	e := history.Event{At: o.call, Kind: history.Call, Sem: h.sem, Op: o.op, Key: what.key, Weight: what.weight, Takes: what.takes, Try: what.try}
	if until > 0 {
		e.Until = o.call + int64(until)
	}
	h.w.tell(e)
	return o
}

// ended notes that an acquisition has returned.
func (h *handle) ended(o *operation, p permit, err error) {
	e := history.Event{At: history.Now(), Kind: history.Got, Sem: h.sem, Op: o.op}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.waiting = slices.DeleteFunc(h.waiting, func(w *operation) bool { return w == o })
	if err != nil {
		e.Kind = history.Failed
		e.Error, e.Text = classify(err)
		h.w.tell(e)
		return
	}
	e.Permit, e.Token, e.Slot = p.ID(), p.Token(), p.Slot()+1
	e.Held = held(p)
	h.holding[holding{e.Permit, e.Token}] = o.op
	h.w.tell(e)
}

// released notes that a permit's holder has no more to do with it.
func (h *handle) released(p permit) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.holding, holding{p.ID(), p.Token()})
}

// held is an instant at which the permit is held for certain: one before it was
// looked at. 0: it is not.
func held(p permit) int64 {
	now := history.Now()
	if p.Err() != nil {
		return 0
	}
	return now
}

// queued takes in that some acquisition waits: the one that came so long ago. If
// several did, none is noted.
func (h *handle) queued(q sema.Event) {
	now := history.Now()
	came := now - int64(q.Waited)
	h.mu.Lock()
	defer h.mu.Unlock()
	var found *operation
	for _, o := range h.waiting {
		if o.call > came || o.call <= came-int64(apart) {
			continue
		}
		if found != nil {
			return
		}
		found = o
	}
	if found == nil || found.queued {
		return
	}
	found.queued = true
	h.w.tell(history.Event{At: now, Kind: history.Queued, Sem: h.sem, Op: found.op})
}

// lost takes in that a permit is not held any more.
func (h *handle) lost(l sema.Event) {
	e := history.Event{At: history.Now(), Kind: history.Lost, Sem: h.sem}
	e.Error, e.Text = classify(l.Err)
	h.mu.Lock()
	defer h.mu.Unlock()
	var known bool
	if e.Op, known = h.holding[holding{l.Permit, l.Token}]; known {
		h.w.tell(e)
	}
}

// classify names the class of an error, and its text.
func classify(err error) (class, text string) {
	failure, failed := errors.AsType[*engine.Error](err)
	_, heavy := errors.AsType[*sema.WeightError](err)
	_, hopeless := errors.AsType[*sema.BusyError](err)
	switch {
	case err == nil:
		return "", ""
	case hopeless:
		class = history.ErrHopeless
	case errors.Is(err, sema.ErrLost):
		class = history.ErrLost
	case errors.Is(err, sema.ErrReleased):
		class = history.ErrReleased
	case errors.Is(err, sema.ErrClosed):
		class = history.ErrClosed
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		class = history.ErrContext // the permits were busy, or the engine silent, until then
	case heavy:
		class = history.ErrWeight
	case failed && failure.Temporary:
		class = history.ErrTemporary
	case failed:
		class = history.ErrEngine
	case errors.Is(err, sema.ErrBusy):
		class = history.ErrRefused
	default:
		class = history.ErrOther
	}
	return class, err.Error()
}
