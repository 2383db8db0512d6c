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
	available int           // permits left on the server
	next      time.Duration // until the next lease ends; below 0: none known
}

// try asks for permits once. A server that has more ended leases than one call
// collects is asked again until permits are granted or there are none to collect.
func (h *handle) try(ctx context.Context, op operation) (attempt, error) {
	for {
		answer, err := h.perform(ctx, op)
		if err != nil {
			return attempt{}, err
		}
		if len(answer) != 4 { // granted, but its receipt was voided; cannot happen to a live caller
			return attempt{}, h.fail(op, ErrUnavailable)
		}
		if answer[0] == 1 || answer[3] == 0 {
			next := time.Duration(answer[2]) * time.Millisecond
			if answer[2] > int64(maxWait/time.Millisecond) {
				next = maxWait
			}
			return attempt{answer[0] == 1, int(answer[1]), next}, nil
		}
	}
}

// maxWait keeps the end of a far lease from overflowing a Duration.
const maxWait = 24 * time.Hour

// tryOnce is try with "not granted" as an error.
func (h *handle) tryOnce(ctx context.Context, op operation) error {
	a, err := h.try(ctx, op)
	if err == nil && !a.granted {
		return h.fail(op, ErrUnavailable)
	}
	return err
}

// acquire waits as Redisson does: try; if that fails subscribe, and try again,
// because a release may have come between; then at each message. Unlike there,
// a timer tries too, and ctx ends the wait.
func (h *handle) acquire(ctx context.Context, op operation, need int) error {
	a, err := h.try(ctx, op)
	if err != nil {
		return h.ended(ctx, op, err)
	}
	if a.granted {
		return nil
	}
	w, err := h.client.hub.join(h.keys.channel, h.client.sharded(), need, h.expirable)
	if err != nil {
		return h.fail(op, err)
	}
	left := 0
	defer func() { h.client.hub.leave(w, left) }()
	h.client.hub.refused(w, a)
	for {
		select {
		case <-w.wake:
		case <-ctx.Done():
			return h.ended(ctx, op, ctx.Err())
		case <-h.client.closing:
			return h.fail(op, ErrClosed)
		}
		if a, err = h.try(ctx, op); err != nil {
			return h.ended(ctx, op, err)
		}
		if a.granted {
			left = a.available
			return nil
		}
		h.client.hub.refused(w, a)
	}
}

// ended is err, or ErrUnavailable and ctx's error if that is what ended the wait:
// between attempts or in the midst of one must not make a difference.
func (h *handle) ended(ctx context.Context, op operation, err error) error {
	if ctx.Err() == nil || !errors.Is(err, ctx.Err()) {
		return err
	}
	return h.fail(op, fmt.Errorf("%w: %w", ErrUnavailable, ctx.Err()))
}
