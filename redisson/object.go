package redisson

import (
	"context"
	"fmt"
	"math"
	"time"
)

// maxPermits is Java's largest int.
const maxPermits = 1<<31 - 1

// forever is what Redis answers for a key without time to live.
const forever = -1

func checkPermits(n, least int) error {
	if n < least || n > maxPermits {
		return invalid("permits", n, fmt.Sprintf("%d to 2147483647, Java's largest int", least))
	}
	return nil
}

// millis turns a duration into what Redis counts in, rounded up so that nothing
// ends early.
func millis(what string, d time.Duration) (int64, error) {
	if d <= 0 {
		return 0, invalid(what, d, "more than 0")
	}
	return int64((d-1)/time.Millisecond) + 1, nil
}

// toInt turns a number from the server into an int. On a machine of 32 bits a
// number beyond int becomes the nearest one.
func toInt(v int64) int { return int(min(max(v, math.MinInt), math.MaxInt)) }

// yes runs an operation that answers with 1 for "done" and 0 for "not so".
func (h *handle) yes(ctx context.Context, op operation) (bool, error) {
	answer, err := h.perform(ctx, op)
	if err != nil {
		return false, err
	}
	if answer[0] < 0 {
		return false, h.named(op, ErrTooMany)
	}
	return answer[0] == 1, nil
}

// number runs an operation that answers with numbers, and returns one of them.
func (h *handle) number(ctx context.Context, op operation, which int) (int, error) {
	answer, err := h.perform(ctx, op)
	if err != nil {
		return 0, err
	}
	return toInt(answer[which]), nil
}

// Name is the semaphore's name.
func (h *handle) Name() string { return h.name }

// AddPermits adds n permits to those available, or removes -n if n is below 0.
// Then fewer than 0 may be available until enough are released; nobody loses a
// permit. With n = 0 it does nothing. It creates a semaphore that does not exist,
// as Redisson does, and keeps the time to live of one that does (Redisson drops
// it). Errors: ErrTooMany, *UnknownError.
func (h *handle) AddPermits(ctx context.Context, n int) error {
	if n < -maxPermits-1 || n > maxPermits {
		return invalid("permits", n, "-2147483648 to 2147483647, the range of Java's int")
	}
	if n == 0 {
		return nil
	}
	_, err := h.yes(ctx, operation{what: "add permits to", script: addScript, writes: true, args: []any{n}})
	return err
}

// Delete removes the semaphore and its held permits, and tells whether it
// existed. Waiters go on waiting for a new one of the same name.
func (h *handle) Delete(ctx context.Context) (bool, error) {
	return h.yes(ctx, operation{what: "delete", script: lifetimeScript, writes: true, args: []any{"del"}})
}

// Exists tells whether the semaphore is there, even if no permit is available.
func (h *handle) Exists(ctx context.Context) (bool, error) {
	return h.yes(ctx, operation{what: "look for", script: lifetimeScript, args: []any{"exists"}})
}

// Expire removes the semaphore and its held permits once ttl has passed; it
// counts in milliseconds, rounded up. It returns false if there is no semaphore.
func (h *handle) Expire(ctx context.Context, ttl time.Duration) (bool, error) {
	ms, err := millis("ttl", ttl)
	if err != nil {
		return false, err
	}
	return h.yes(ctx, operation{what: "expire", script: lifetimeScript, writes: true, args: []any{"pexpire", ms}})
}

// ExpireAt is Expire at a time of the server's clock. A time in the past
// removes the semaphore now.
func (h *handle) ExpireAt(ctx context.Context, at time.Time) (bool, error) {
	if at.UnixMilli() <= 0 {
		return false, invalid("time", at, "a time after 1970")
	}
	return h.yes(ctx, operation{what: "expire", script: lifetimeScript, writes: true, args: []any{"pexpireat", at.UnixMilli()}})
}

// Persist takes back Expire. It returns false if nothing was set to expire.
func (h *handle) Persist(ctx context.Context) (bool, error) {
	return h.yes(ctx, operation{what: "persist", script: lifetimeScript, writes: true, args: []any{"persist"}})
}

// TTL is how long the semaphore will exist, NoExpiry if for ever.
// ErrNoSemaphore says that it does not.
func (h *handle) TTL(ctx context.Context) (time.Duration, error) {
	op := operation{what: "time to live of", script: lifetimeScript, args: []any{"pttl"}}
	answer, err := h.perform(ctx, op)
	switch {
	case err != nil:
		return 0, err
	case answer[0] == forever:
		return NoExpiry, nil
	case answer[0] < 0:
		return 0, h.named(op, ErrNoSemaphore)
	}
	return time.Duration(answer[0]) * time.Millisecond, nil
}

// NoExpiry is the TTL of a semaphore that exists until it is deleted.
const NoExpiry time.Duration = -1
