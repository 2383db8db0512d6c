package redisson

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"syscall"
	"testing"

	"github.com/redis/go-redis/v9"

	"sema/internal/fixture/expect"
	"sema/internal/fixture/redistest"
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

// The network decides in which order copies of a request and its undoing arrive.
// This test makes each order happen.
func TestReceipts(t *testing.T) {
	t.Parallel()
	rdb := redistest.Start(t).Client()
	ctx := context.Background()
	counterKeys := []string{"s", "redisson_sc:{s}", "{s}:receipts:h"}
	expirableKeys := []string{"e", "redisson_sc:{e}", "{e}:timeout", "{e}:receipts:h"}
	kinds := []struct {
		name          string
		keys          []string
		acquire, undo *script
		args          []any
	}{
		{"counter", counterKeys, counterAcquire, counterUndo, []any{2}},
		{"expirable", expirableKeys, expirableAcquire, expirableUndo, []any{-1, "id-of-16-bytes-1", "id-of-16-bytes-2"}},
	}
	for _, k := range kinds {
		send := func(s *script, number int, mode string) []int64 {
			t.Helper()
			argv := append([]any{"publish", "0", number, mode}, k.args...)
			answer, err := evaluate(ctx, rdb, s, k.keys, argv)
			if err != nil {
				t.Fatalf("%s: %v", k.name, err)
			}
			return answer
		}
		left := func(what string, want int) {
			t.Helper()
			if n, err := rdb.Get(ctx, k.keys[0]).Int(); err != nil || n != want {
				t.Fatalf("%s: %s: %d permits left, %v; want %d", k.name, what, n, err, want)
			}
		}
		expect.OK(t, rdb.Set(ctx, k.keys[0], 5, 0).Err())

		first := send(k.acquire, 1, "first")
		if again := send(k.acquire, 1, "again"); !slices.Equal(first, again) {
			t.Fatalf("%s: second copy answers %v; want %v", k.name, again, first)
		}
		left("two copies", 3)
		send(k.undo, 1, "first")
		send(k.undo, 1, "again")
		left("undone twice", 5)
		send(k.acquire, 1, "first")
		left("a copy after that", 5)

		send(k.undo, 2, "first")
		send(k.acquire, 2, "first")
		left("a request that came after it was undone", 5)

		send(k.acquire, 4, "first")
		if late := send(k.acquire, 3, "first"); len(late) != 0 {
			t.Fatalf("%s: an overtaken request got %v", k.name, late)
		}
		send(k.undo, 3, "again")
		left("an overtaken request and its end", 3)
		send(k.undo, 4, "first")
		left("all undone", 5)

		// A refusal must be remembered as well if a first copy may still come.
		expect.OK(t, rdb.Set(ctx, k.keys[0], 1, 0).Err())
		send(k.acquire, 5, "again")
		expect.OK(t, rdb.Set(ctx, k.keys[0], 5, 0).Err())
		send(k.acquire, 5, "first")
		left("a first copy that came after its caller was refused", 5)
	}
}
