package redisson

import (
	"context"
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
	writes bool // has an effect, so wants a receipt

	repeatable bool // copies are harmless even without receipts
	insist     bool // carried on in the background until it is done
	// undo takes the effect back when the caller has gone, or the outcome is
	// unknown and tracked. Only for acquisitions, whose answer begins with 1
	// when there is an effect.
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
	tracked   bool // has receipts
	expirable bool // is an ExpirableSemaphore
}

func newHandle(c *Client, name string) (*handle, error) {
	if err := checkName(name, c.cluster); err != nil {
		return nil, err
	}
	h := &handle{client: c, name: name, keys: newKeys(name, newHandleID()), tracked: !c.options.NoReceipts}
	h.data = []string{h.keys.counter, h.keys.channel}
	return h, nil
}

// perform runs an operation and returns its answer, or early when ctx ends;
// the operation then goes on without the caller, and an acquisition that turns
// out to be granted is undone.
func (h *handle) perform(ctx context.Context, op operation) ([]int64, error) {
	if err := ctx.Err(); err != nil {
		return nil, h.fail(op, err)
	}
	if !h.client.begin() {
		return nil, h.fail(op, ErrClosed)
	}
	type outcome struct {
		answer []int64
		err    error
	}
	// Without a buffer: an outcome is either in the caller's hands or is
	// known not to be.
	result := make(chan outcome)
	go func() {
		defer h.client.end()
		var t ticket
		if op.writes && h.tracked {
			t = h.lanes.take()
			defer h.lanes.put(t)
		}
		// ctx's values are for hooks on the go-redis client; its end is not for
		// a request that is already on its way.
		whole, cancel := context.WithTimeout(context.WithoutCancel(ctx), h.client.options.Timeout)
		stop := context.AfterFunc(h.client.life, cancel)
		answer, err := h.settle(whole, op, t, false)
		stop()
		cancel()
		delivered := true
		select {
		case result <- outcome{answer, err}:
		case <-ctx.Done():
			delivered = false
		}
		h.tidy(op, t, answer, err, delivered)
	}()
	select {
	case r := <-result:
		return r.answer, r.err
	case <-ctx.Done():
	}
	if op.writes && op.undo == nil {
		return nil, &UnknownError{Op: op.what, Name: h.name, Err: ctx.Err()}
	}
	return nil, h.fail(op, ctx.Err())
}

// settle sends until the outcome is known or ctx ends.
func (h *handle) settle(ctx context.Context, op operation, t ticket, maybe bool) ([]int64, error) {
	// maybe: an earlier copy may have been executed.
	for try := 0; ; try++ {
		answer, err := h.send(ctx, op, t, maybe)
		switch judge(err) {
		case done:
			return answer, nil
		case refused:
			if !maybe {
				return nil, h.fail(op, explain(err))
			}
			return nil, h.doubt(op, err)
		case unknown:
			maybe = true
			if op.writes && t.number == 0 && !op.repeatable {
				return nil, h.doubt(op, err)
			}
		}
		if !pause(ctx, try) {
			if maybe && op.writes {
				return nil, h.doubt(op, err)
			}
			return nil, h.fail(op, err)
		}
	}
}

func (h *handle) send(ctx context.Context, op operation, t ticket, maybe bool) ([]int64, error) {
	publish, err := h.client.publishCommand(ctx)
	if err != nil {
		return nil, &notSent{err}
	}
	keys, lane, mode := h.data, "", "first"
	if t.number > 0 {
		keys = append(keys[:len(keys):len(keys)], h.keys.receipts)
		lane = strconv.Itoa(t.lane)
	}
	if maybe {
		mode = "again"
	}
	argv := append([]any{publish, lane, t.number, mode}, op.args...)
	answer, err := evaluate(ctx, h.client.rdb, op.script, keys, argv)
	if err == nil && len(answer) == 0 {
		return nil, errors.New("redisson: server forgot or overtook the request")
	}
	return answer, err
}

// tidy leaves nothing behind: an acquisition that the caller does not know of
// is undone, an insistent operation is completed.
func (h *handle) tidy(op operation, t ticket, answer []int64, err error, delivered bool) {
	var doubt *UnknownError
	open := errors.As(err, &doubt)
	switch {
	case op.undo != nil && (open && h.settles(op) || !delivered && err == nil && answer[0] == 1):
		op.script, op.repeatable = op.undo, op.repeatable || t.number > 0
		h.pursue(op, t, open)
	case op.insist && open && h.settles(op):
		h.pursue(op, t, true)
	}
}

// pursue settles an operation for as long as its receipt can be relied on.
func (h *handle) pursue(op operation, t ticket, maybe bool) {
	ctx, cancel := context.WithTimeout(h.client.life, pursueFor)
	defer cancel()
	if _, err := h.settle(ctx, op, t, maybe); err != nil {
		h.client.unsettled.Add(1)
	}
}

// pursueFor must stay well below the life of a receipt, KEEP in shared.lua.
const pursueFor = 5 * time.Minute

// settles tells whether an unknown outcome of op can be settled later.
func (h *handle) settles(op operation) bool {
	return (h.tracked || op.repeatable) && (op.undo != nil || op.insist)
}

func (h *handle) doubt(op operation, err error) error {
	return &UnknownError{Op: op.what, Name: h.name, Settling: h.settles(op), Err: err}
}

// fail says what failed for whom, with the package's prefix once.
func (h *handle) fail(op operation, err error) error {
	if strings.HasPrefix(err.Error(), "redisson: ") {
		return fmt.Errorf("%w: %s %q", err, op.what, h.name)
	}
	return fmt.Errorf("redisson: %s %q: %w", op.what, h.name, err)
}
