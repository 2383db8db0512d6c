// Package each limits each of many names by itself: one call at a time for each host, two for
// each API key.
//
//	hosts, err := each.New(engine, "hosts", 1, nil)
//	err = hosts.Do(ctx, "example.org", func(ctx context.Context) error { return call(ctx) })
//
// A name's semaphore is made when it is first needed. If the names share a limit as well ("two
// per tenant, twenty in all"), use one sema.Semaphore with sema.Options.Caps and sema.For.
package each

import (
	"cmp"
	"container/list"
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"sema"
)

// separator stands between a prefix and a name. No prefix contains it, so no two pairs of prefix
// and name make the same semaphore.
const separator = "/"

// ErrTooMany: a further name would need one more open Semaphore than Options.Open, and all are
// in use. It is a sema.ErrBusy. Nothing is held.
var ErrTooMany = fmt.Errorf("%w: too many names in use at once", sema.ErrBusy)

// Options of a Group. The zero value of each field is its default.
type Options struct {
	// Semaphore has the options of each name's Semaphore. Its Observer is told of all names.
	Semaphore sema.Options

	// LimitOf is the limit of a name, 1 … engine.MaxLimit; 0 means the one given to New. It is
	// called when the name's Semaphore is opened, so a new answer counts after the name
	// was unused for Idle. It must not block, or call the Group. Default: each
	// name gets the one given to New.
	LimitOf func(name string) int

	// Open is how many Semaphores may be open at once, at least 1. Default 1000. A name
	// beyond that takes the place of the one that is unused for longest. If all are in use, it
	// fails with ErrTooMany. Each takes a few kilobytes.
	Open int

	// Idle is how long an unused Semaphore stays open, at least 1 ms. Default: 1 min.
	Idle time.Duration
}

// Group has one limit for each name. Its names are shared with every other client of the same
// engine and prefix. It is safe for concurrent use.
//
// The semaphore of a name is called prefix/name; operators see it so. Names are compared byte by
// byte: lower-case hosts before. Hash a name that is a secret, such as an API key. A name has at
// least one byte, and is UTF-8 without control characters. With prefix and slash it has at
// most 255 bytes. The methods fail with a *sema.ArgumentError on another name.
//
// While a permit of a name is held or waited for, the name's Semaphore stays open.
type Group struct {
	engine  sema.Engine
	prefix  string
	limit   int
	options Options

	mu      sync.Mutex
	open    map[string]*handle // by name
	order   list.List          // of the same: the one first that was asked for least recently
	timer   *time.Timer        // runs sweep; armed while something is open
	leaving int                // handles that are being closed
	room    chan struct{}      // closed, and replaced, when one of them is
	left    sync.WaitGroup     // the same, for Close
	closed  bool
	last    context.Context // ends when that of Shutdown has: what is being closed then has a moment
	hurry   context.CancelFunc
	err     error // the first one of closing a handle
}

// New prepares semaphores called prefix/name, each limited to limit. The prefix has 1 … 253 bytes of
// UTF-8, without control characters and without a slash. New does no I/O. It fails with a
// *sema.ArgumentError on a value out of range. A nil options means the defaults.
func New(e sema.Engine, prefix string, limit int, options *Options) (*Group, error) {
	g := &Group{engine: e, prefix: prefix, limit: limit, open: map[string]*handle{}, room: make(chan struct{})}
	g.last, g.hurry = context.WithCancel(context.Background())
	if options != nil {
		g.options = *options
	}
	g.options.Open = cmp.Or(g.options.Open, 1000)
	g.options.Idle = cmp.Or(g.options.Idle, time.Minute)
	refused := func(what string, value any, want string) (*Group, error) {
		return nil, &sema.ArgumentError{Package: "each", What: what, Value: value, Want: want}
	}
	switch o := g.options; {
	case prefix == "":
		return refused("prefix", prefix, "a prefix that is not empty")
	case strings.Contains(prefix, separator):
		return refused("prefix", prefix, "no slash, which begins the name")
	case o.Open < 1:
		return refused("Open", o.Open, "at least 1")
	case o.Idle < time.Millisecond:
		return refused("Idle", o.Idle, "at least 1ms")
	}
	probe, err := g.semaphore("x", limit) // it refuses the same values as those to come
	if err != nil {
		return nil, err
	}
	_ = probe.Close()
	return g, nil
}

// Acquire waits for a permit of the name, as sema.Semaphore.Acquire does, with the same errors.
// If Options.Open names are in use it fails with ErrTooMany at once. If as many again are being
// closed, it waits for one of them as long as it waits for an engine that does not answer, and
// fails with sema.ErrEngine.
func (g *Group) Acquire(ctx context.Context, name string, options ...sema.AcquireOption) (*sema.Permit, error) {
	h, rest, err := g.use(ctx, name, options)
	if err != nil {
		return nil, err
	}
	defer g.done(h)
	return h.sem.Acquire(ctx, rest...)
}

// TryAcquire takes a permit of the name if one is free now, as sema.Semaphore.TryAcquire does,
// and fails with sema.ErrBusy otherwise. It fails like Acquire if too many names are in use.
func (g *Group) TryAcquire(ctx context.Context, name string, options ...sema.AcquireOption) (*sema.Permit, error) {
	h, rest, err := g.use(ctx, name, options)
	if err != nil {
		return nil, err
	}
	defer g.done(h)
	return h.sem.TryAcquire(ctx, rest...)
}

// Do runs f while holding a permit of the name, as sema.Semaphore.Do does. It fails like Acquire,
// and returns f's error as it is.
func (g *Group) Do(ctx context.Context, name string, f func(context.Context) error, options ...sema.AcquireOption) error {
	h, rest, err := g.use(ctx, name, options)
	if err != nil {
		return err
	}
	defer g.done(h)
	return h.sem.Do(ctx, f, rest...)
}

// Close closes the Semaphores of all names at once: waits end with sema.ErrClosed, and permits
// still held are given back. That takes three seconds at most. Further calls fail with
// sema.ErrClosed; closing again changes nothing.
func (g *Group) Close() error {
	g.mu.Lock()
	g.refuse()
	for _, h := range g.open {
		g.leave(h, h.sem.Close)
	}
	g.mu.Unlock()
	g.left.Wait()
	return g.err
}

// Shutdown closes the Group without taking a permit from a holder, as sema.Semaphore.Shutdown does: from its
// call on every wait, and every further call, fails with sema.ErrClosed. Permits are held and renewed
// until they are released, or until ctx ends. Then Shutdown closes the Group as Close does. Once ctx has
// ended, that takes 250 ms at most. The error is ctx's if ctx ended first. Close ends a Shutdown at once.
func (g *Group) Shutdown(ctx context.Context) error {
	var mu sync.Mutex
	var first error
	var all sync.WaitGroup
	defer context.AfterFunc(ctx, g.hurry)()
	g.mu.Lock()
	g.refuse()
	for _, h := range g.open {
		all.Go(func() {
			err := h.sem.Shutdown(ctx)
			mu.Lock()
			defer mu.Unlock()
			first = cmp.Or(first, err)
		})
	}
	g.mu.Unlock()
	all.Wait()
	return cmp.Or(first, g.Close())
}

// refuse makes further calls fail, and those that wait for room. The lock is held.
func (g *Group) refuse() {
	g.closed = true
	if g.timer != nil {
		g.timer.Stop()
	}
	g.tell()
}
