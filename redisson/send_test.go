package redisson

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"syscall"
	"testing"

	"github.com/redis/go-redis/v9"
)

// reply is an error that the server answered with.
type reply string

func (r reply) Error() string { return string(r) }
func (reply) RedisError()     {}

// What an error means for the request, and for one that was not sent yet.
func TestOutcomes(t *testing.T) {
	dial := &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}
	reset := &net.OpError{Op: "write", Err: syscall.ECONNRESET}
	for _, c := range []struct {
		err           error
		sent, prepare outcome
	}{
		{reply("LOADING Redis is loading the dataset in memory"), sendAgain, sendAgain},
		{reply("READONLY You can't write against a read only replica."), sendAgain, sendAgain},
		{reply("MOVED 1 127.0.0.1:2"), sendAgain, sendAgain},
		{reply("ERR max number of clients reached"), sendAgain, sendAgain},
		{reply("OOM command not allowed when used memory > 'maxmemory'."), rejected, rejected},
		{reply("NOPERM this user has no permissions"), rejected, rejected},
		{reply("WRONGTYPE Operation against a key holding the wrong kind of value"), rejected, rejected},
		{reply("ERR anything else"), rejected, rejected},
		{redis.ErrClosed, rejected, rejected},
		{redis.ErrPoolTimeout, sendAgain, sendAgain},
		{dial, sendAgain, sendAgain},
		{reset, uncertain, sendAgain},
		{io.EOF, uncertain, sendAgain},
		{context.DeadlineExceeded, uncertain, sendAgain},
		{errors.New("anything"), uncertain, sendAgain},
	} {
		for _, err := range []error{c.err, fmt.Errorf("wrapped: %w", c.err)} {
			if got := outcomeOf(err, true); got != c.sent {
				t.Errorf("%v: %d; want %d", err, got, c.sent)
			}
			if got := outcomeOf(err, false); got != c.prepare {
				t.Errorf("before the request: %v: %d; want %d", err, got, c.prepare)
			}
		}
	}
	if got := outcomeOf(nil, true); got != answered {
		t.Errorf("no error: %d", got)
	}
}
