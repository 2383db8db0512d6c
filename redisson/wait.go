package redisson

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// attempt is the answer to one acquisition.
type attempt struct {
	granted   bool
	available int           // permits that are available after it
	next      time.Duration // until the next lease ends; below 0: none known
}

// try asks for permits once. The server may have more ended leases than one call
// collects. Then it is asked again, until permits are granted or there is
// nothing to collect.
func (h *handle) try(ctx context.Context, op operation) (attempt, error) {
	for {
		answer, err := h.perform(ctx, op)
		if err != nil {
			return attempt{}, err
		}
		if len(answer) != 4 { // granted, then undone; cannot happen to a caller that waits
			return attempt{}, h.named(op, ErrBusy)
		}
		if answer[0] == 1 || answer[3] == 0 {
			next := time.Duration(answer[2]) * time.Millisecond
			if answer[2] > int64(maxWait/time.Millisecond) {
				next = maxWait
			}
			return attempt{answer[0] == 1, toInt(answer[1]), next}, nil
		}
	}
}

// maxWait keeps the end of a far lease from overflowing a Duration.
const maxWait = 24 * time.Hour

// tryOnce is try with "not granted" as an error.
func (h *handle) tryOnce(ctx context.Context, op operation) error {
	a, err := h.try(ctx, op)
	if err == nil && !a.granted {
		return h.named(op, ErrBusy)
	}
	return err
}

// acquire waits as Redisson does. It tries; if that fails it subscribes and
// tries again, because a release may have come between; then it tries at each
// message. Unlike Redisson it also tries at times without a message, and ctx
// ends the wait.
func (h *handle) acquire(ctx context.Context, op operation, need int) error {
	a, err := h.try(ctx, op)
	if err != nil {
		return h.waitEnded(ctx, op, err)
	}
	if a.granted {
		return nil
	}
	d := h.client.dispatcher
	w, err := d.add(h.keys.channel, h.client.sharded(), need, h.expirable)
	if err != nil {
		return h.named(op, err)
	}
	available := 0
	defer func() { d.remove(w, available) }()
	d.attemptFailed(w, a)
	for {
		select {
		case <-w.wake:
		case <-ctx.Done():
			return h.waitEnded(ctx, op, ctx.Err())
		case <-h.client.closing:
			return h.named(op, ErrClosed)
		}
		if a, err = h.try(ctx, op); err != nil {
			return h.waitEnded(ctx, op, err)
		}
		if a.granted {
			available = a.available
			return nil
		}
		d.attemptFailed(w, a)
	}
}

// waitEnded is the error of a wait. If ctx ended it, the error is ErrBusy
// and ctx's, whether that happened between two attempts or during one.
func (h *handle) waitEnded(ctx context.Context, op operation, err error) error {
	if ctx.Err() == nil || !errors.Is(err, ctx.Err()) {
		return err
	}
	return h.named(op, fmt.Errorf("%w: %w", ErrBusy, ctx.Err()))
}
