package view_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"syscall"
	"testing"

	"sema/engine"
	"sema/internal/view"
)

func TestTrouble(t *testing.T) {
	in := func(err error) error { return &engine.Error{Op: "state", Name: "x", Err: fmt.Errorf("look: %w", err)} }
	for want, err := range map[string]error{
		"Redis does not answer.":                                                    in(context.DeadlineExceeded),
		"Redis ended the connection.":                                               in(io.EOF),
		"The host redis-1 of Redis is not known.":                                   in(&net.DNSError{Name: "redis-1", Err: "no such host"}),
		"Redis does not run, or not at this address: the connection is refused.":    in(&net.OpError{Op: "dial", Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)}),
		"WRONGPASS invalid username-password pair. Try: user or password is wrong.": &engine.Error{Op: "state", Err: errors.New("WRONGPASS invalid username-password pair"), Hint: "user or password is wrong"},
		"This server is about to end.":                                              engine.ErrClosed,
		"No such semaphore: \"x\".":                                                 errors.New(`sema: no such semaphore: "x"`),
	} {
		if got := view.Trouble("Redis", err); got != want {
			t.Errorf("%v:\n%s, not\n%s", err, got, want)
		}
	}
}
