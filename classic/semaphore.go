package classic

import "context"

// Semaphore is what the lock and all semaphores of this package can do. Its
// methods may be called from several goroutines at once.
type Semaphore interface {
	// Acquire tries to get a permit and returns its id, a random UUID. It
	// does not wait for a permit (a [Lock] waits up to its Options.Wait): when
	// none was free, ok is false and err is nil. On an error no permit is held;
	// see the package comment for outcomes that are unknown.
	Acquire(ctx context.Context) (id string, ok bool, err error)

	// Release gives the permit back. It reports false when the permit was no
	// longer held: already released, or its lease had ended and another
	// caller cleaned it up. A cancelled ctx is an error and releases nothing;
	// in a defer, use context.WithoutCancel.
	Release(ctx context.Context, id string) (bool, error)
}

// Refresher is a semaphore whose permits can be kept beyond their lease: all
// but [Lock] and [Basic], for which the book has no such operation.
type Refresher interface {
	Semaphore

	// Refresh starts the permit's lease anew. It reports false when the
	// permit was lost, which it never brings back. Permits whose lease has
	// ended but that nobody has cleaned up yet can still be refreshed, except
	// with [Clockless].
	Refresh(ctx context.Context, id string) (bool, error)
}
