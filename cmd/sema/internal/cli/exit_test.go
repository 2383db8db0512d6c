package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"sema"
	"sema/engine"
	"sema/internal/fixture/expect"
)

// A signal does not end the program before what a failed wait left is given back, and does if that takes long.
func TestASecondSignalLeavesNothing(t *testing.T) {
	signals := &signals{C: make(chan os.Signal, 2)}
	for _, takesLong := range []bool{false, true} {
		signals.C <- syscall.SIGTERM
		signals.C <- syscall.SIGTERM
		ended, given := make(chan struct{}), atomic.Bool{}
		err := closeOrLeave(func() {
			for len(signals.C) > 0 {
				time.Sleep(time.Millisecond)
			}
			if takesLong {
				<-ended
			}
			given.Store(true)
		}, func() {}, signals, sema.ErrBusy)
		if stopped, ok := errors.AsType[*exit](err); !ok || stopped.code != bySignal(syscall.SIGTERM).code || given.Load() == takesLong {
			t.Errorf("takes long %v: %v, given back %v", takesLong, err, given.Load())
		}
		close(ended)
	}
}

// Each class of error has one exit code, and its report is one sentence after the other.
func TestExitCodesOfErrors(t *testing.T) {
	away := &engine.Error{Op: "acquire", Name: "x", Hint: "look at the server", Err: errors.New("it stopped.")}
	for _, test := range []struct {
		err  error
		code int
		text string
	}{
		{sema.ErrBusy, 75, "sema: no permit available\n"},
		{fmt.Errorf("%w: %w", sema.ErrBusy, context.DeadlineExceeded), 75, "sema: no permit available: context deadline exceeded\n"},
		{away, 69, "sema: acquire \"x\": it stopped. Try: look at the server\n"},
		{fmt.Errorf("%w: %w", away, context.DeadlineExceeded), 69, "sema: acquire \"x\": it stopped: context deadline exceeded. Try: look at the server\n"},
		{sema.ErrClosed, 69, "sema: closed\n"},
		{sema.ErrRevoked, 76, "sema: permit lost: revoked by an operator\n"},
		{&sema.WeightError{Name: "x", Weight: 2, Limit: 1}, 64, "sema: weight 2 is above the limit 1 of \"x\". Try: sema limit x N, with a larger N\n"},
		{&sema.LimitError{Name: "x", Stored: 2, Wanted: 1}, 64, "sema: \"x\" has limit 2, not 1. Try: sema limit x 1\n"},
		{&sema.ArgumentError{What: "lease", Value: 1, Want: "more"}, 64, "sema: lease 1: want more\n"},
	} {
		out := &bytes.Buffer{}
		if code := (&program{stderr: out}).report(test.err); code != test.code || out.String() != test.text {
			t.Errorf("%v: code %d, %q; want %d, %q", test.err, code, out, test.code, test.text)
		}
	}
}

// Operators see which releases share a semaphore, once there are two.
func TestShowSaysReleases(t *testing.T) {
	of := func(version string) engine.Client { return engine.Client{Host: "h", Version: version} }
	one := engine.State{Limit: 2, Holders: []engine.Holder{{ID: "a-1-1", Client: of("0.1.0")}, {ID: "b-1-1", Client: of("")}}}
	if text := table("x", one); strings.Contains(text, "releases") {
		t.Errorf("one release:\n%s", text)
	}
	two := one
	two.Waiters = []engine.Waiter{{ID: "c-1-1", Client: of("0.2.0")}, {ID: "d-1-1", Client: of("0.1.0")}}
	expect.Has(t, table("x", two), "releases: 2 of sema 0.1.0, 1 of sema 0.2.0\n")
}
