package redisson

import (
	"context"
	"time"
)

// Semaphore is Redisson's RSemaphore: a counter of available permits. Nothing
// tells who holds them: a holder that dies keeps its permits until somebody
// releases for it. It is safe for concurrent use, and needs no closing.
type Semaphore struct{ *handle }

// Semaphore returns the semaphore of that name, whether or not it exists on the
// server. A name is 1 to 1024 bytes of UTF-8. On a cluster, two kinds of names
// are refused as well. With names such as "a{b", the braces put Redisson's keys
// into different slots. With names such as "a}b{c}", Redisson uses the wrong
// slot and so never wakes a Java waiter. The error is an *ArgumentError. Keep
// the result and use it again: each one has receipts of its own.
//
// With a name mapper in Redisson's configuration, pass the mapped name.
func (c *Client) Semaphore(name string) (*Semaphore, error) {
	h, err := newHandle(c, name)
	if err != nil {
		return nil, err
	}
	return &Semaphore{h}, nil
}

// TrySetPermits creates the semaphore with n permits, n >= 0, if it does not
// exist. Otherwise it returns false and leaves the semaphore unchanged, even one
// without available permits. A ttl above 0 removes the semaphore when it has
// passed; 0 keeps it.
func (s *Semaphore) TrySetPermits(ctx context.Context, n int, ttl time.Duration) (bool, error) {
	if err := checkPermits(n, 0); err != nil {
		return false, err
	}
	var ms int64
	if ttl != 0 {
		var err error
		if ms, err = millis("ttl", ttl); err != nil {
			return false, err
		}
	}
	return s.yes(ctx, operation{what: "set permits of", script: counterSet, writes: true, args: []any{n, ms}})
}

// TryAcquire takes n permits, n >= 1, if that many are available now. Otherwise
// it takes none and returns ErrBusy, also when there is no such
// semaphore. When ctx ends before the answer comes, or the outcome stays unknown
// (*UnknownError), the caller holds nothing: if the permits were granted, they
// are returned in the background. For the exception see Options.NoReceipts.
func (s *Semaphore) TryAcquire(ctx context.Context, n int) error {
	if err := checkPermits(n, 1); err != nil {
		return err
	}
	return s.tryOnce(ctx, s.acquisition(n))
}

// Acquire takes n permits, n >= 1, all at once. It waits until they are available
// or ctx ends; then the error is both ErrBusy and ctx's. A deadline is what
// Redisson calls wait time. There is no queue across processes: the process that
// asks first after a release is served. Within a process, waiters are woken in the
// order they came. If the semaphore does not exist, Acquire waits until somebody
// creates it. If the server cannot be reached for Options.Timeout, Acquire returns
// the error. Otherwise it is as TryAcquire.
func (s *Semaphore) Acquire(ctx context.Context, n int) error {
	if err := checkPermits(n, 1); err != nil {
		return err
	}
	return s.acquire(ctx, s.acquisition(n), n)
}

func (s *Semaphore) acquisition(n int) operation {
	return operation{what: "acquire", script: counterAcquire, undo: counterUndo, writes: true, args: []any{n}}
}

// Release returns n permits, n >= 1. It does not check that the caller holds
// them: releasing twice adds permits, as in the original. Unlike there, it does
// not create a semaphore that is gone, and returns ErrNoSemaphore.
//
// It also works when ctx has ended; Options.Timeout bounds it instead. On
// *UnknownError with Settling, the client completes the release in the
// background: do not repeat it.
func (s *Semaphore) Release(ctx context.Context, n int) error {
	ok, err := s.ReleaseIfExists(ctx, n)
	if err == nil && !ok {
		return s.named(operation{what: "release"}, ErrNoSemaphore)
	}
	return err
}

// ReleaseIfExists is Release with false in place of ErrNoSemaphore.
func (s *Semaphore) ReleaseIfExists(ctx context.Context, n int) (bool, error) {
	if err := checkPermits(n, 1); err != nil {
		return false, err
	}
	return s.yes(context.WithoutCancel(ctx), operation{
		what: "release", script: counterRelease, writes: true, complete: true, args: []any{n},
	})
}

// DrainPermits takes all available permits and returns how many they were. A
// number below 0, left by AddPermits, is raised to 0 and returned. It keeps the
// semaphore's time to live (Redisson drops it), and returns 0 without a
// semaphore. On *UnknownError the permits may have been taken.
func (s *Semaphore) DrainPermits(ctx context.Context) (int, error) {
	answer, err := s.perform(ctx, operation{what: "drain", script: counterDrain, writes: true})
	if err != nil {
		return 0, err
	}
	return toInt(answer[0]), nil
}

// AvailablePermits is how many permits are available now: 0 if there is no
// semaphore, below 0 when AddPermits removed more than there were.
func (s *Semaphore) AvailablePermits(ctx context.Context) (int, error) {
	answer, err := s.perform(ctx, operation{what: "count", script: counterAvailable})
	if err != nil {
		return 0, err
	}
	return toInt(answer[0]), nil
}
