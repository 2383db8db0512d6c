package engine

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"testing"

	"sema/internal/class"
)

// An Error is an ErrEngine and no other sentinel error of package sema.
func TestAnErrorIsAnErrEngine(t *testing.T) {
	network := &net.OpError{Op: "read", Err: os.ErrDeadlineExceeded}
	for _, cause := range []error{nil, network, context.DeadlineExceeded, context.Canceled, class.ErrBusy, class.ErrLost, fmt.Errorf("inner: %w", ErrClosed)} {
		err := fmt.Errorf("look: %w", &Error{Op: "state", Err: cause})
		if got := class.Of(err); len(got) != 1 || got[0] != ErrEngine {
			t.Errorf("cause %v: classes %v", cause, got)
		}
		if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
			t.Errorf("cause %v reads as the end of the caller's context", cause)
		}
		if failure, ok := errors.AsType[*Error](err); !ok || failure.Err != cause {
			t.Errorf("cause %v is not in the details", cause)
		}
	}
	err := &Error{Op: "state", Err: network}
	if found, ok := errors.AsType[*net.OpError](err); !ok || found != network || !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("%v hides the driver's own error", err)
	}
	if got := class.Of(&Error{Op: "state", Err: ErrClosed}); len(got) != 1 || got[0] != ErrClosed {
		t.Errorf("a closed engine: classes %v", got)
	}
}
