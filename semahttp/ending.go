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
	pass      *pass
	close     func() error
	abandoned func() // tells the observer; may be nil

	mu      sync.Mutex // guards what follows while watch runs
	unwatch func() bool
	cleanup runtime.Cleanup

	once once.Once
	err  error // of close
}

// watch has e end when ctx ends, and when the garbage collector finds that nobody has
// p any more. e must not refer to p.
func watch[T any](e *ending, ctx context.Context, p *T) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.unwatch = context.AfterFunc(ctx, func() { _ = e.end(false) })
	e.cleanup = runtime.AddCleanup(p, func(e *ending) { go func() { _ = e.end(true) }() }, e)
}

// end closes and then gives back the pass, once: a second caller waits for that.
// found says that the garbage collector found it.
func (e *ending) end(found bool) error {
	e.once.Do(func() {
		e.mu.Lock()
		unwatch, cleanup := e.unwatch, e.cleanup
		e.mu.Unlock()
		cleanup.Stop()
		unwatch()
		func() {
			defer e.pass.release() // also if close panics: it may call Transport.Used
			e.err = e.close()
		}()
		if found && e.abandoned != nil {
			e.abandoned()
		}
	})
	return e.err
}
