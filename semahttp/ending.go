package semahttp

import (
	"context"
	"runtime"
	"sync"

	"sema/internal/once"
)

// ending ends the use of a pass: by a response that is still arriving, or by a
// connection that a handler took over.
type ending struct {
	mu      sync.Mutex // guards what follows while watch runs
	unwatch func() bool
	cleanup runtime.Cleanup

	once once.Once
	err  error // of closing
}

// watch has end called when ctx ends, and, with found, when the garbage collector
// finds that nobody has p any more. end must not refer to p.
func watch[T any](e *ending, ctx context.Context, p *T, end func(found bool) error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.unwatch = context.AfterFunc(ctx, func() { _ = end(false) })
	e.cleanup = runtime.AddCleanup(p, func(end func(bool) error) { go func() { _ = end(true) }() }, end)
}

// do closes and then gives back the pass, once: a second caller waits for that.
// If the garbage collector found it, abandoned is told, which may be nil.
func (e *ending) do(found bool, closing func() error, p *pass, abandoned func()) error {
	e.once.Do(func() {
		e.mu.Lock()
		unwatch, cleanup := e.unwatch, e.cleanup
		e.mu.Unlock()
		cleanup.Stop()
		unwatch()
		e.err = closing()
		p.release()
		if found && abandoned != nil {
			abandoned()
		}
	})
	return e.err
}
