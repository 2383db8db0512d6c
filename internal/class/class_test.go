package class

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"syscall"
	"testing"
)

// What is hidden does not decide what its caller does; the rest can be found.
func TestHideKeepsAllButClassesAndContexts(t *testing.T) {
	cause := fmt.Errorf("dial: %w", &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED})
	revoked := fmt.Errorf("%w: revoked", ErrLost)
	err := Hide(fmt.Errorf("%w: %w: %w: %w: %w", cause, context.DeadlineExceeded, context.Canceled, ErrBusy, revoked))
	for target, want := range map[error]bool{
		syscall.ECONNREFUSED: true, cause: true,
		context.DeadlineExceeded: false, context.Canceled: false, ErrBusy: false, revoked: false, ErrLost: false, ErrEngine: false,
	} {
		if got := errors.Is(err, target); got != want {
			t.Errorf("%v: found %v, want %v", target, got, want)
		}
	}
	if network, ok := errors.AsType[*net.OpError](err); !ok || network.Op != "dial" {
		t.Errorf("%v has no *net.OpError", err)
	}
	// A dial that takes too long says that it is a DeadlineExceeded.
	if _, late := (&net.Dialer{}).DialContext(expired(), "tcp", "127.0.0.1:1"); !errors.Is(late, context.DeadlineExceeded) || errors.Is(Hide(late), context.DeadlineExceeded) {
		t.Errorf("%v reads as its caller's deadline", late)
	}
	if Hide(nil) != nil {
		t.Error("nothing became an error")
	}
}

func expired() context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 0)
	cancel()
	return ctx
}

func TestOfListsEachClassOnce(t *testing.T) {
	if got := Of(fmt.Errorf("%w: %w: %w", ErrBusy, ErrLost, ErrBusy)); !slices.Equal(got, []error{ErrBusy, ErrLost}) {
		t.Errorf("%v", got)
	}
	if got := Of(errors.New("other")); len(got) > 0 {
		t.Errorf("%v", got)
	}
}

func TestJoinIsOneLineAndSaysNothingTwice(t *testing.T) {
	lost, work := fmt.Errorf("%w: %q", ErrLost, "x"), errors.New("work failed")
	because := fmt.Errorf("stopped: %w", lost)
	for _, test := range []struct {
		errs []error
		want string
	}{
		{nil, ""},
		{[]error{nil, nil}, ""},
		{[]error{nil, work}, "work failed"},
		{[]error{lost, nil, work}, `sema: permit lost: "x"; work failed`},
		{[]error{lost, lost}, `sema: permit lost: "x"`},
		{[]error{lost, because}, `stopped: sema: permit lost: "x"`},
		{[]error{because, lost, work}, `stopped: sema: permit lost: "x"; work failed`},
	} {
		err := Join(test.errs...)
		if got := strings.TrimSuffix(fmt.Sprint(err), "<nil>"); got != test.want {
			t.Errorf("%q, want %q", got, test.want)
		}
		for _, e := range test.errs {
			if e != nil && !errors.Is(err, e) {
				t.Errorf("%v has no %v", err, e)
			}
		}
	}
}
