package enginetest

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"sema"
	"sema/engine"
)

// The suite finds an error that a program could mistake.
func TestAnErrorIsOfOneClass(t *testing.T) {
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	away := &engine.Error{Op: "acquire", Name: "x", Err: fmt.Errorf("read: %w", context.DeadlineExceeded)}
	for _, test := range []struct {
		ctx   context.Context
		err   error
		wrong bool
	}{
		{t.Context(), sema.ErrBusy, false},
		{t.Context(), away, false},
		{t.Context(), sema.ErrRevoked, false},
		{t.Context(), fmt.Errorf("%w: too many", sema.ErrBusy), false},
		{t.Context(), &sema.WeightError{}, false},
		{ended, fmt.Errorf("%w: %w", sema.ErrBusy, context.Canceled), false},
		{ended, fmt.Errorf("%w: %w", away, context.Canceled), false},

		{t.Context(), errors.New("another"), true},
		{t.Context(), fmt.Errorf("%w: %w", sema.ErrBusy, away), true},
		{t.Context(), fmt.Errorf("%w: %w", sema.ErrLost, sema.ErrClosed), true},
		{t.Context(), fmt.Errorf("%w: %w", sema.ErrBusy, &sema.WeightError{}), true},
		{t.Context(), fmt.Errorf("%w: %w", sema.ErrBusy, context.Canceled), true},
		{ended, fmt.Errorf("%w: %w", sema.ErrBusy, context.DeadlineExceeded), true},
		{ended, fmt.Errorf("%w: %w", sema.ErrLost, context.Canceled), true},
		{ended, context.Canceled, true},
		{t.Context(), errors.Join(sema.ErrLost, errors.New("work failed")), true},
		{t.Context(), fmt.Errorf("%w: it stopped..", sema.ErrLost), true},
	} {
		if wrong := mistakable(test.ctx, test.err); (wrong != "") != test.wrong {
			t.Errorf("%q: %q, want a fault: %v", test.err, wrong, test.wrong)
		}
	}
}
