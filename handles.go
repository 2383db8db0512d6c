package sema

import (
	"cmp"
	"container/list"
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

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

	mu        sync.Mutex
	open      map[string]*handle
	idle      list.List // of *handle: those that nobody uses, the longest unused first
	abandoned []*keyUse // found by the garbage collector
	timer     *time.Timer
	armed     bool           // it is going to fire: always while something is open
	leaving   int            // handles that are being closed
	gone      chan struct{}  // closed when one of them is; nil: nobody waits for that
	left      sync.WaitGroup // the same, for close
	closed    bool
	closing   once.Once
}

// handle is an open Semaphore. It is guarded by the lock of handles.
type handle struct {
	name  string
	sem   *Semaphore
	users int
	idle  *list.Element // in handles.idle, when nobody uses it
	since time.Time     // then
}

// keyUse is one use of a handle.
type keyUse struct {
	all  *handles
	sem  *Semaphore
	h    *handle
	over atomic.Bool
}

// use opens the Semaphore of that name, if it is not open, and keeps it so until
// done is called. If others have to be closed before, it waits for that as long as
// an acquisition waits for an engine.
func (a *handles) use(ctx context.Context, name string) (*keyUse, error) {
	u, gone, err := a.tryUse(name)
	if gone == nil {
		return u, err
	}
	within, cancel := context.WithTimeout(ctx, cmp.Or(answerWithin(ctx), roomPatience))
	defer cancel()
	for gone != nil {
		select {
		case <-gone:
			u, gone, err = a.tryUse(name)
		case <-within.Done():
			err := error(&EngineError{Op: "open", Name: name, NotExecuted: true, Temporary: true, Hint: "check the engine", Err: errNoRoom})
			if ctx.Err() != nil {
				err = fmt.Errorf("%w: %w: %w", named(ErrUnavailable, name), ctx.Err(), err)
			}
			return nil, err
		}
	}
	return u, err
}

// tryUse is use without waiting. A channel says that it is to be tried again when
// that is closed.
func (a *handles) tryUse(name string) (*keyUse, <-chan struct{}, error) {
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
		a.open[name] = h
		if !a.armed {
			a.arm(a.idleFor)
		}
	}
	if h.idle != nil {
		a.idle.Remove(h.idle)
		h.idle = nil
	}
	h.users++
	return &keyUse{all: a, sem: h.sem, h: h}, nil, nil
}

// makeRoom sees to it that one more may be open. What is being closed does not
// count, but there is no more of it than may be open: an engine that is out of
// reach has a close take up to a lease. The channel is for those who have to wait
// for that. The lock is held.
func (a *handles) makeRoom(name string) (gone <-chan struct{}, err error) {
	if len(a.open) < a.most {
		return nil, nil
	}
	a.takeUp()
	eldest := a.idle.Front()
	switch {
	case eldest == nil:
		return nil, named(ErrTooManyKeys, name)
	case a.leaving >= a.most:
		if a.gone == nil {
			a.gone = make(chan struct{})
		}
		return a.gone, nil
	}
	a.leave(eldest.Value.(*handle))
	return nil, nil
}

// leave closes a handle that nobody uses, in the background. The lock is held.
func (a *handles) leave(h *handle) {
	a.idle.Remove(h.idle)
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

// done ends a use. Calling it again does nothing.
func (u *keyUse) done() {
	if u.over.Swap(true) {
		return
	}
	u.all.mu.Lock()
	defer u.all.mu.Unlock()
	u.drop()
}

// drop ends a use. The lock is held.
func (u *keyUse) drop() {
	u.h.users--
	if u.h.users == 0 && !u.all.closed {
		u.h.since = time.Now()
		u.h.idle = u.all.idle.PushBack(u.h)
	}
}

// abandon ends a use that nobody can end any more. It is called by the garbage
// collector's goroutine, so it leaves the rest to others.
func (u *keyUse) abandon() {
	u.all.mu.Lock()
	u.all.abandoned = append(u.all.abandoned, u)
	u.all.mu.Unlock()
}

// takeUp does what abandon left. The lock is held.
func (a *handles) takeUp() {
	for _, u := range a.abandoned {
		if !u.over.Swap(true) {
			u.drop()
		}
	}
	a.abandoned = nil
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
	a.takeUp()
	next := a.idleFor
	for e := a.idle.Front(); e != nil; e = a.idle.Front() {
		h := e.Value.(*handle)
		if left := a.idleFor - time.Since(h.since); left > 0 {
			next = left
			break
		}
		a.leave(h)
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

// close closes all at once, and one more, and waits for the end of it.
func (a *handles) close(more *Semaphore) error {
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
		if more != nil {
			all = append(all, more)
		}
		errs = make([]error, len(all))
		for i, s := range all {
			a.left.Go(func() { errs[i] = s.Close() })
		}
		a.left.Wait()
	})
	return errors.Join(errs...)
}
