package redisson

import (
	"context"
	"encoding/hex"
	"time"
)

// NoLease is the lease of a permit that is held until it is released.
const NoLease time.Duration = -1

// ExpirableSemaphore is Redisson's RPermitExpirableSemaphore: every permit has
// an id and may have a lease, after which it returns by itself. Nothing renews
// a lease but UpdateLeaseTime, and nothing tells a holder that its lease ended.
// Leases are measured by the server's clock, where Redisson takes each client's
// own. It is safe for concurrent use, and needs no closing.
type ExpirableSemaphore struct{ *handle }

// ExpirableSemaphore returns the semaphore of that name; see Semaphore. A name
// should be used for one kind only: both share the counter and the channel.
func (c *Client) ExpirableSemaphore(name string) (*ExpirableSemaphore, error) {
	h, err := newHandle(c, name)
	if err != nil {
		return nil, err
	}
	h.expirable, h.data = true, append(h.data, h.keys.timeouts)
	return &ExpirableSemaphore{h}, nil
}

// TryAcquire takes a permit if one is available now and returns its id: 32
// hexadecimal digits, with which any process may release it, Java or Go.
// Otherwise the error is ErrBusy. The lease starts when the server
// executes the request; it is counted in milliseconds, rounded up, and is above
// 0 or NoLease. About ctx and *UnknownError see Semaphore.TryAcquire; the id
// makes sure that nothing stays taken with Options.NoReceipts too, unless the
// request is executed after the attempt to take it back.
func (s *ExpirableSemaphore) TryAcquire(ctx context.Context, lease time.Duration) (string, error) {
	ids, err := s.TryAcquireN(ctx, 1, lease)
	if err != nil {
		return "", err
	}
	return ids[0], nil
}

// TryAcquireN is TryAcquire for n permits, 1 to 1000, all of them or none.
func (s *ExpirableSemaphore) TryAcquireN(ctx context.Context, n int, lease time.Duration) ([]string, error) {
	return s.acquireIDs(n, lease, func(op operation) error { return s.tryOnce(ctx, op) })
}

// Acquire is TryAcquire that waits until a permit is available or ctx ends; see
// Semaphore.Acquire. A lease that ends wakes it too.
func (s *ExpirableSemaphore) Acquire(ctx context.Context, lease time.Duration) (string, error) {
	ids, err := s.AcquireN(ctx, 1, lease)
	if err != nil {
		return "", err
	}
	return ids[0], nil
}

// AcquireN is Acquire for n permits, 1 to 1000, all at once.
func (s *ExpirableSemaphore) AcquireN(ctx context.Context, n int, lease time.Duration) ([]string, error) {
	return s.acquireIDs(n, lease, func(op operation) error { return s.acquire(ctx, op, n) })
}

// acquireIDs makes n ids, and an acquisition of them for run.
func (s *ExpirableSemaphore) acquireIDs(n int, lease time.Duration, run func(operation) error) ([]string, error) {
	if n < 1 || n > maxIDs {
		return nil, invalid("permits", n, "1 to 1000")
	}
	ms, err := leaseMillis(lease)
	if err != nil {
		return nil, err
	}
	ids, args := make([]string, n), []any{ms}
	for i := range ids {
		raw := random(idBytes)
		ids[i], args = hex.EncodeToString(raw), append(args, string(raw))
	}
	err = run(operation{
		what: "acquire", script: expirableAcquire, undo: expirableUndo,
		writes: true, repeatable: true, args: args,
	})
	if err != nil {
		return nil, err
	}
	return ids, nil
}

func leaseMillis(lease time.Duration) (int64, error) {
	if lease == NoLease {
		return -1, nil
	}
	if lease <= 0 {
		return 0, invalid("lease", lease, "more than 0, or NoLease")
	}
	return millis("lease", lease)
}

// TryRelease returns the permits of 1 to 1000 different ids and tells whether
// each was held with its lease running. If not, none of them is released,
// though those whose lease has ended return to the semaphore, as they would
// have anyway. About ctx and *UnknownError see Semaphore.Release.
func (s *ExpirableSemaphore) TryRelease(ctx context.Context, ids ...string) (bool, error) {
	args, err := readIDs(ids)
	if err != nil {
		return false, err
	}
	return s.yes(context.WithoutCancel(ctx), operation{
		what: "release", script: expirableRelease, writes: true, repeatable: true, complete: true, args: args,
	})
}

// Release is TryRelease with ErrNotHeld in place of false.
func (s *ExpirableSemaphore) Release(ctx context.Context, ids ...string) error {
	ok, err := s.TryRelease(ctx, ids...)
	if err == nil && !ok {
		return s.named(operation{what: "release"}, ErrNotHeld)
	}
	return err
}

// UpdateLeaseTime lets the lease of a held permit end that long from now,
// sooner or later than before, or never with NoLease. It returns false, and
// revives nothing, if the permit was released or its lease has ended.
func (s *ExpirableSemaphore) UpdateLeaseTime(ctx context.Context, id string, lease time.Duration) (bool, error) {
	raw, err := readIDs([]string{id})
	if err != nil {
		return false, err
	}
	ms, err := leaseMillis(lease)
	if err != nil {
		return false, err
	}
	return s.yes(ctx, operation{
		what: "update lease of", script: expirableRenew, writes: true, repeatable: true, args: []any{ms, raw[0]},
	})
}

// LeaseTime is how long the permit's lease will last, or NoLease. The error is
// ErrNotHeld if it was released or its lease has ended.
func (s *ExpirableSemaphore) LeaseTime(ctx context.Context, id string) (time.Duration, error) {
	raw, err := readIDs([]string{id})
	if err != nil {
		return 0, err
	}
	op := operation{what: "lease of", script: expirableLease, args: raw}
	answer, err := s.perform(ctx, op)
	switch {
	case err != nil:
		return 0, err
	case answer[0] == 0:
		return 0, s.named(op, ErrNotHeld)
	case answer[0] < 0:
		return NoLease, nil
	case answer[0] > int64(longest/time.Millisecond):
		return longest, nil
	}
	return time.Duration(answer[0]) * time.Millisecond, nil
}

// longest is what a Duration can say; Java can set longer leases.
const longest time.Duration = 1<<63 - 1

// AvailablePermits is how many permits can be acquired now, those included
// whose lease has ended; below 0 after the semaphore was shrunk below what is
// held, 0 without a semaphore.
func (s *ExpirableSemaphore) AvailablePermits(ctx context.Context) (int, error) {
	return s.count(ctx, 0)
}

// AcquiredPermits is how many permits are held with their lease running.
func (s *ExpirableSemaphore) AcquiredPermits(ctx context.Context) (int, error) {
	return s.count(ctx, 1)
}

// Permits is the number of permits in all, available and acquired; 0 without a
// semaphore.
func (s *ExpirableSemaphore) Permits(ctx context.Context) (int, error) {
	return s.count(ctx, 2)
}

func (s *ExpirableSemaphore) count(ctx context.Context, which int) (int, error) {
	return s.number(ctx, operation{what: "count", script: expirableCounts}, which)
}

// TrySetPermits creates the semaphore with n permits in all, n >= 0, if it does
// not exist; else it returns false and changes nothing. Permits that outlived
// an earlier semaphore of this name count among the n.
func (s *ExpirableSemaphore) TrySetPermits(ctx context.Context, n int) (bool, error) {
	return s.set(ctx, n, "new")
}

// SetPermits makes n, n >= 0, the number of permits in all, held ones included,
// and creates the semaphore if needed. Shrinking revokes nothing: fewer than 0
// may be available until holders release.
func (s *ExpirableSemaphore) SetPermits(ctx context.Context, n int) error {
	_, err := s.set(ctx, n, "always")
	return err
}

func (s *ExpirableSemaphore) set(ctx context.Context, n int, when string) (bool, error) {
	if err := checkPermits(n, 0); err != nil {
		return false, err
	}
	return s.yes(ctx, operation{
		what: "set permits of", script: expirableSet, writes: true, repeatable: when == "always", args: []any{n, when},
	})
}
