package sema

import (
	"cmp"
	"container/list"
	"context"
	"errors"
	"sync"
	"time"

	"sema/engine"
	"sema/internal/class"
	"sema/internal/loop"
	"sema/internal/once"
)

// roomPatience is how long a key waits for others to be closed: as long as an
// acquisition for an engine that does not answer.
const roomPatience = 3 * time.Second

var errNoRoom = errors.New("too many others are being closed, and the engine does not answer")

// handles keeps Semaphores open while they are in use, and for a while longer.
type handles struct {
	most    int           // open at once
	idleFor time.Duration // an unused one stays open
	make    func(name string) (*Semaphore, error)

	mu      sync.Mutex
	open    map[string]*handle
	order   list.List // of *handle, all that are open: the one first that was not asked for the longest
	timer   *time.Timer
	armed   bool           // it is going to fire: always while something is open
	leaving int            // handles that are being closed
	gone    chan struct{}  // closed when one of them is; nil: nobody waits for that
	left    sync.WaitGroup // the same, for close
	closed  bool
	closing once.Once
}

// handle is an open Semaphore. It is guarded by the lock of handles.
type handle struct {
	name  string
	sem   *Semaphore
	users int           // between use and done
	at    *list.Element // in handles.order
}

// use opens the Semaphore of that name, if it is not open, and keeps it so until
// done is called, and as long as somebody has a permit of it. If others have to be closed
// before, it waits for that as long as an acquisition waits for an engine.
func (a *handles) use(ctx context.Context, name string) (*handle, error) {
	h, gone, err := a.tryUse(name)
	if gone == nil {
		return h, err
	}
	within, cancel := context.WithTimeout(ctx, cmp.Or(answerWithin(ctx), roomPatience))
	defer cancel()
	for gone != nil {
		select {
		case <-gone:
			h, gone, err = a.tryUse(name)
		case <-within.Done():
			failure := &engine.Error{Op: "open", Name: name, NotExecuted: true, Temporary: true, Hint: "check the engine", Err: errNoRoom}
			if ctx.Err() != nil {
				return nil, loop.Ended(failure, ended(ctx))
			}
			return nil, failure
		}
	}
	return h, err
}

// tryUse is use without waiting. A channel says that it is to be tried again when
// that is closed.
func (a *handles) tryUse(name string) (*handle, <-chan struct{}, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.closed {
		return nil, nil, named(ErrClosed, name)
	}
	h := a.open[name]
	if h == nil {
		if gone, err := a.makeRoom(name); gone != nil || err != nil {
			return nil, gone, err
		}
		sem, err := a.make(name)
		if err != nil {
			return nil, nil, err
		}
		h = &handle{name: name, sem: sem}
		if a.open == nil {
			a.open = map[string]*handle{}
		}
		a.open[name], h.at = h, a.order.PushBack(h)
		if !a.armed {
			a.arm(a.idleFor)
		}
	} else {
		a.order.MoveToBack(h.at)
	}
	h.users++
	return h, nil, nil
}

// makeRoom sees to it that one more may be open. What is being closed does not
// count, but there is no more of it than may be open: with an engine that is out of
// reach, a close takes up to three seconds. The channel is for those who have to wait
// for that. The lock is held.
func (a *handles) makeRoom(name string) (gone <-chan struct{}, err error) {
	if len(a.open) < a.most {
		return nil, nil
	}
	if a.leaving >= a.most {
		if a.gone == nil {
			a.gone = make(chan struct{})
		}
		return a.gone, nil
	}
	for range a.open {
		h := a.order.Front().Value.(*handle)
		if _, unused := h.idle(); unused {
			a.leave(h)
			return nil, nil
		}
		a.order.MoveToBack(h.at) // the next look need not begin with it
	}
	return nil, named(ErrTooManyKeys, name)
}

// idle reports whether nobody uses the handle, and for how long. The lock is held.
func (h *handle) idle() (long time.Duration, unused bool) {
	if h.users > 0 {
		return 0, false
	}
	return h.sem.unused()
}

// leave closes a handle that nobody uses, in the background. The lock is held.
func (a *handles) leave(h *handle) {
	a.order.Remove(h.at)
	delete(a.open, h.name)
	a.leaving++
	a.left.Go(func() {
		_ = h.sem.Close()
		a.mu.Lock()
		a.leaving--
		a.tell()
		a.mu.Unlock()
	})
}

// tell has those try again who wait for room. The lock is held.
func (a *handles) tell() {
	if a.gone != nil {
		close(a.gone)
		a.gone = nil
	}
}

// done ends a use.
func (a *handles) done(h *handle) {
	a.mu.Lock()
	h.users--
	a.mu.Unlock()
}

// arm has sweep run after d. The lock is held.
func (a *handles) arm(d time.Duration) {
	a.armed = true
	if a.timer == nil {
		a.timer = time.AfterFunc(d, a.sweep)
	} else {
		a.timer.Reset(d)
	}
}

// sweep closes what has been idle for long enough.
func (a *handles) sweep() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.armed = false
	if a.closed {
		return
	}
	next := a.idleFor
	for _, h := range a.open {
		long, unused := h.idle()
		switch {
		case unused && long >= a.idleFor:
			a.leave(h)
		case unused:
			next = min(next, a.idleFor-long)
		}
	}
	if len(a.open) > 0 {
		a.arm(next)
	}
}

func (a *handles) len() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.open)
}

// close closes all at once, and waits for the end of it.
func (a *handles) close() error {
	var errs []error
	a.closing.Do(func() {
		a.mu.Lock()
		a.closed = true
		a.tell()
		var all []*Semaphore
		for _, h := range a.open {
			all = append(all, h.sem)
		}
		clear(a.open)
		if a.timer != nil {
			a.timer.Stop()
		}
		a.mu.Unlock()
		errs = make([]error, len(all))
		for i, s := range all {
			a.left.Go(func() { errs[i] = s.Close() })
		}
		a.left.Wait()
	})
	return class.Join(errs...)
}
