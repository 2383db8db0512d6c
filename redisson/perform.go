package redisson

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// operation is one request to a semaphore.
type operation struct {
	what   string // for errors
	script *script
	args   []any
	writes bool // it changes something, so it needs a receipt

	repeatable bool // copies are harmless even without receipts
	complete   bool // if its outcome is unknown, it is sent again in the background until it is known

	// undo is the script that takes the effect back when the caller has given
	// up, or when the outcome is unknown and can be settled. Only acquisitions
	// have it. The first number of their answer is 1 when permits were granted.
	undo *script
}

// handle is what both kinds of semaphore have in common: names, receipts, and
// operations whose outcome gets known.
type handle struct {
	client    *Client
	name      string
	keys      keys
	data      []string // KEYS of every script, without the receipts
	lanes     lanes
	receipts  bool // the handle uses receipts
	expirable bool // it is an ExpirableSemaphore
}

func newHandle(c *Client, name string) (*handle, error) {
	if err := checkName(name, c.cluster); err != nil {
		return nil, err
	}
	h := &handle{client: c, name: name, keys: newKeys(name, hex.EncodeToString(random(8))), receipts: !c.options.NoReceipts}
	h.data = []string{h.keys.counter, h.keys.channel}
	return h, nil
}

// perform runs an operation and returns its answer. When ctx ends first, it
// returns at once and the operation goes on without the caller; an acquisition
// that is then granted is undone.
func (h *handle) perform(ctx context.Context, op operation) ([]int64, error) {
	if err := ctx.Err(); err != nil {
		return nil, h.named(op, err)
	}
	if !h.client.begin() {
		return nil, h.named(op, ErrClosed)
	}
	type result struct {
		answer []int64
		err    error
	}
	// The channel has no buffer, so that the sender knows whether the caller
	// received the result.
	results := make(chan result)
	go func() {
		defer h.client.end()
		var id requestID
		if op.writes && h.receipts {
			id = h.lanes.take()
			defer h.lanes.put(id)
		}
		// The hooks of the go-redis client may want ctx's values. Its end does
		// not count for a request that is already on its way.
		whole, cancel := context.WithTimeout(context.WithoutCancel(ctx), h.client.options.Timeout)
		stop := context.AfterFunc(h.client.lifetime, cancel)
		answer, err := h.sendUntilKnown(whole, op, id, false)
		stop()
		cancel()
		received := true
		select {
		case results <- result{answer, err}:
		case <-ctx.Done():
			received = false
		}
		h.settleAfter(op, id, answer, err, received)
	}()
	select {
	case r := <-results:
		return r.answer, r.err
	case <-ctx.Done():
	}
	if op.writes && op.undo == nil {
		return nil, &UnknownError{Op: op.what, Name: h.name, Err: ctx.Err()}
	}
	return nil, h.named(op, ctx.Err())
}

// sendUntilKnown sends a request until its outcome is known or ctx ends.
// maybeExecuted tells that an earlier copy may have been executed.
func (h *handle) sendUntilKnown(ctx context.Context, op operation, id requestID, maybeExecuted bool) ([]int64, error) {
	for try := 0; ; try++ {
		var answer []int64
		publish, err := h.client.publishCommand(ctx)
		sent := err == nil
		if sent {
			answer, err = h.send(ctx, op, publish, id, maybeExecuted)
		}
		switch outcomeOf(err, sent) {
		case answered:
			return answer, nil
		case rejected:
			if !maybeExecuted {
				return nil, h.fail(op, explain(err))
			}
			return nil, h.unknown(op, err)
		case uncertain:
			maybeExecuted = true
			if op.writes && id.number == 0 && !op.repeatable {
				return nil, h.unknown(op, err)
			}
		}
		if !pause(ctx, try) {
			if maybeExecuted && op.writes {
				return nil, h.unknown(op, err)
			}
			return nil, h.fail(op, err)
		}
	}
}

// send sends one copy of a request.
func (h *handle) send(ctx context.Context, op operation, publish string, id requestID, maybeExecuted bool) ([]int64, error) {
	keys, lane, mode := h.data, "", "first"
	if id.number > 0 {
		keys = append(keys[:len(keys):len(keys)], h.keys.receipts)
		lane = strconv.Itoa(id.lane)
	}
	if maybeExecuted {
		mode = "again"
	}
	argv := append([]any{publish, lane, id.number, mode}, op.args...)
	answer, err := evaluate(ctx, h.client.rdb, op.script, keys, argv)
	if err == nil && len(answer) == 0 {
		return nil, errors.New("redisson: the server has a receipt of a later request in its place")
	}
	return answer, err
}

// settleAfter makes sure that an operation leaves nothing behind. It undoes an
// acquisition that the caller does not know of, and completes a release whose
// outcome is unknown.
func (h *handle) settleAfter(op operation, id requestID, answer []int64, err error, received bool) {
	var unknown *UnknownError
	isUnknown := errors.As(err, &unknown)
	switch {
	case op.undo != nil && (isUnknown && h.canSettle(op) || !received && err == nil && answer[0] == 1):
		op.script, op.repeatable = op.undo, op.repeatable || id.number > 0
		h.settle(op, id, isUnknown)
	case op.complete && isUnknown && h.canSettle(op):
		h.settle(op, id, true)
	}
}

// settle sends an operation for as long as its receipt can be relied on.
func (h *handle) settle(op operation, id requestID, maybeExecuted bool) {
	ctx, cancel := context.WithTimeout(h.client.lifetime, settleFor)
	defer cancel()
	if _, err := h.sendUntilKnown(ctx, op, id, maybeExecuted); err != nil {
		h.client.unsettled.Add(1)
	}
}

// settleFor must stay well below the life of a receipt, KEEP in shared.lua.
const settleFor = 5 * time.Minute

// canSettle tells whether an unknown outcome of op can be settled later.
func (h *handle) canSettle(op operation) bool {
	return (h.receipts || op.repeatable) && (op.undo != nil || op.complete)
}

func (h *handle) unknown(op operation, err error) error {
	return &UnknownError{Op: op.what, Name: h.name, Settling: h.canSettle(op), Err: err}
}

// named puts the operation and the semaphore's name to an error, and the
// package's prefix if the error has none.
func (h *handle) named(op operation, err error) error {
	if strings.HasPrefix(err.Error(), "redisson: ") {
		return fmt.Errorf("%w: %s %q", err, op.what, h.name)
	}
	return fmt.Errorf("redisson: %s %q: %w", op.what, h.name, err)
}

// fail is named for errors of Redis and the network. Behind the error it says
// what the user can try.
func (h *handle) fail(op operation, err error) error {
	return fmt.Errorf("%w%s", h.named(op, err), hint(err))
}
