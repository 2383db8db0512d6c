package each

import (
	"cmp"
	"container/list"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"sema"
	"sema/engine"
	"sema/internal/watchdog"
)

var errNoRoom = errors.New("too many others are being closed, and the engine does not answer")

// handle is an open Semaphore. The Group's lock guards it.
type handle struct {
	name  string
	sem   *sema.Semaphore
	users int           // between use and done
	at    *list.Element // in Group.order
}

func (g *Group) semaphore(name string, limit int) (*sema.Semaphore, error) {
	return sema.New(g.engine, g.prefix+separator+name, limit, &g.options.Semaphore)
}

// about is an error about a name.
func (g *Group) about(err error, name string) error {
	return fmt.Errorf("%w: %q", err, g.prefix+separator+name)
}

// patience is how long an acquisition waits for an engine that says nothing.
const patience = 3 * time.Second

// use opens the Semaphore of a name, unless it is open. The Semaphore stays open until done, and
// while anybody has a permit of it. rest is the options of the acquisition that follows: if there was no
// room, with bounds that count from the beginning of the wait for it.
func (g *Group) use(ctx context.Context, name string, options []sema.AcquireOption) (h *handle, rest []sema.AcquireOption, err error) {
	defer func() {
		if tell := g.options.Semaphore.Observer.Failed; tell != nil && (errors.Is(err, ErrTooMany) || errors.Is(err, errNoRoom)) { // no Semaphore does
			asked := sema.ReadOptions(options...)
			tell(sema.Event{Semaphore: g.prefix + separator + name, Path: asked.Key.Names(), Err: err})
		}
	}()
	h, room, err := g.tryUse(name)
	if room == nil {
		return h, options, err
	}
	began, asked := time.Now(), sema.ReadOptions(options...)
	within, cancel := watchdog.Within(ctx, min(patience, cmp.Or(asked.Answer, patience), cmp.Or(asked.Wait, patience)))
	defer cancel()
	for room != nil {
		select {
		case <-room:
			h, room, err = g.tryUse(name)
		case <-within.Done():
			err := &engine.Error{Op: "open", Name: g.prefix + separator + name, NotExecuted: true, Temporary: true, Hint: "check the engine", Err: errNoRoom}
			if ctx.Err() != nil {
				return nil, nil, fmt.Errorf("%w: %w", err, ctx.Err())
			}
			return nil, nil, err
		}
	}
	waited := time.Since(began)
	rest = slices.Clone(options)
	if asked.Wait > 0 {
		rest = append(rest, sema.WaitAtMost(max(1, asked.Wait-waited)))
	}
	if asked.Answer > 0 {
		rest = append(rest, sema.AnswerWithin(max(1, asked.Answer-waited)))
	}
	return h, rest, err
}

// tryUse is use without waiting. If it returns a channel, try again when that is closed.
func (g *Group) tryUse(name string) (h *handle, room <-chan struct{}, err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		return nil, nil, g.about(sema.ErrClosed, name)
	}
	if h = g.open[name]; h == nil {
		if h, room, err = g.add(name); h == nil {
			return nil, room, err
		}
	}
	g.order.MoveToBack(h.at)
	h.users++
	return h, nil, nil
}

// add opens a further Semaphore, if there is room. The lock is held.
func (g *Group) add(name string) (h *handle, room <-chan struct{}, err error) {
	if name == "" {
		return nil, nil, &sema.ArgumentError{Package: "each", What: "name", Value: name, Want: "a name that is not empty"}
	}
	if err := engine.ValidateName(g.prefix + separator + name); err != nil {
		return nil, nil, err
	}
	if room, err := g.makeRoom(name); room != nil || err != nil {
		return nil, room, err
	}
	limit := g.limit
	if f := g.options.LimitOf; f != nil {
		limit = cmp.Or(f(name), limit)
	}
	sem, err := g.semaphore(name, limit)
	if err != nil {
		return nil, nil, err
	}
	h = &handle{name: name, sem: sem}
	h.at = g.order.PushBack(h)
	g.open[name] = h
	if len(g.open) == 1 {
		g.arm(g.options.Idle)
	}
	return h, nil, nil
}

// makeRoom closes an unused Semaphore if no further one may be open. One that is being closed does
// not count as open: with an engine out of reach its end takes up to three seconds. As many may be
// closing as may be open; beyond that the channel says when to try again. The lock is held.
func (g *Group) makeRoom(name string) (room <-chan struct{}, err error) {
	if len(g.open) < g.options.Open {
		return nil, nil
	}
	if g.leaving >= g.options.Open {
		return g.room, nil
	}
	for range g.open {
		h := g.order.Front().Value.(*handle)
		if _, unused := h.unused(); unused {
			g.leave(h, h.close(g.last))
			return nil, nil
		}
		g.order.MoveToBack(h.at) // the next look need not begin with it
	}
	return nil, g.about(ErrTooMany, name)
}

// unused reports whether nobody uses the handle, and for how long. The lock is held.
func (h *handle) unused() (long time.Duration, unused bool) {
	if h.users > 0 {
		return 0, false
	}
	return h.sem.Unused()
}

// close closes the Semaphore of a handle that nobody uses, in a moment once ctx has ended.
func (h *handle) close(ctx context.Context) func() error {
	return func() error {
		if err := h.sem.Shutdown(ctx); ctx.Err() == nil {
			return err
		}
		return nil
	}
}

// leave closes a Semaphore in the background. The lock is held.
func (g *Group) leave(h *handle, closing func() error) {
	g.order.Remove(h.at)
	delete(g.open, h.name)
	g.leaving++
	g.left.Go(func() {
		err := closing()
		g.mu.Lock()
		defer g.mu.Unlock()
		g.leaving--
		g.err = cmp.Or(g.err, err)
		g.tell()
	})
}

// tell wakes the callers that wait for room. The lock is held.
func (g *Group) tell() {
	close(g.room)
	g.room = make(chan struct{})
}

// done ends a use.
func (g *Group) done(h *handle) {
	g.mu.Lock()
	h.users--
	g.mu.Unlock()
}

// arm runs sweep after d, and not before. The lock is held.
func (g *Group) arm(d time.Duration) {
	if g.timer != nil {
		g.timer.Stop()
	}
	g.timer = time.AfterFunc(d, g.sweep)
}

// sweep closes what was unused for Idle.
func (g *Group) sweep() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		return
	}
	next := g.options.Idle
	for _, h := range g.open {
		switch long, unused := h.unused(); {
		case unused && long >= g.options.Idle:
			g.leave(h, h.close(g.last))
		case unused:
			next = min(next, g.options.Idle-long)
		}
	}
	if len(g.open) > 0 {
		g.arm(next)
	}
}
