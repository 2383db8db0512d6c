package classic

import (
	"cmp"
	"context"

	"github.com/redis/go-redis/v9"
)

// Locked is the correct semaphore of Redis in Action, section 6.3.4: a [Fair]
// whose Acquire runs under a [Lock] of the same name, so that the steps of two
// callers cannot interleave. Acquire reports false also when it cannot have the
// lock within Options.Wait.
//
// It never over-admits as long as all callers use the lock, and clocks differ
// by less than a lease's remaining time when its holder releases or refreshes.
// Beyond that:
//   - A caller whose clock is ahead by more ends the leases of others early and
//     admits one caller too many. The book says that a difference within a
//     second is harmless. That is true only if permits are released more than
//     a second before their leases end.
//   - Under contention it refuses although permits are free, because another
//     caller has the lock. It is the slowest of all.
//   - A client of the book's own code that dies with the lock leaves it without
//     a lease, and then no client of that code ever gets a permit again. Here
//     the next caller sets a lease on such a lock (not with Options.Lua).
//
// It follows the book's text, which asks for the lock with timeouts; the book's
// code takes the one without. The two exclude each other.
//
// Use it to join a fleet that uses it; otherwise [Scripted] promises the same
// in one round trip.
type Locked struct {
	fair *Fair
	lock *Lock
}

// NewLocked returns the semaphore name with the given limit (1 to 2^31−1).
// Options in use: all.
func NewLocked(rdb redis.UniversalClient, name string, limit int, o Options) (*Locked, error) {
	fair, err := NewFair(rdb, name, limit, o)
	if err != nil {
		return nil, err
	}
	if o.Wait == 0 {
		o.Wait = defaultLockedWait
	}
	lease, err := duration("lock lease", o.LockLease, defaultLease, 1)
	if err != nil {
		return nil, err
	}
	lock, err := NewLock(rdb, name, Options{Lease: lease, Wait: o.Wait, Lua: o.Lua})
	if err != nil {
		return nil, err
	}
	return &Locked{fair, lock}, nil
}

// Acquire tries once to get a permit, after up to Options.Wait for the lock;
// see [Semaphore].
func (l *Locked) Acquire(ctx context.Context) (string, bool, error) {
	lockID, ok, err := l.lock.Acquire(ctx)
	if err != nil || !ok {
		return "", false, err
	}
	id, ok, err := l.fair.Acquire(ctx)

	ctx, cancel := cleanup(ctx)
	defer cancel()
	kept, unlockErr := l.lock.Release(ctx, lockID)
	switch {
	case err != nil || !ok:
		return "", false, cmp.Or(err, unlockErr)
	case unlockErr != nil || !kept:
		// The lock's lease ended meanwhile, so another caller may have tried at
		// the same time. Only a caller that kept the lock can trust its rank.
		_, err := l.fair.remove(ctx, id)
		return "", false, cmp.Or(unlockErr, err)
	}
	return id, true, nil
}

// Release gives the permit back, without the lock; see [Semaphore].
func (l *Locked) Release(ctx context.Context, id string) (bool, error) {
	return l.fair.Release(ctx, id)
}

// Refresh starts the permit's lease anew, without the lock; see [Refresher].
func (l *Locked) Refresh(ctx context.Context, id string) (bool, error) {
	return l.fair.Refresh(ctx, id)
}
