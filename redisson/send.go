package redisson

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// onceCmd is a command that go-redis must not send again by itself, however
// many retries the user's client has: after a lost answer it may have been
// executed, and only we know whether a second copy is harmless.
type onceCmd struct{ *redis.Cmd }

// NoRetry tells go-redis.
func (onceCmd) NoRetry() bool { return true }

// Clone keeps the wrapping.
func (c onceCmd) Clone() redis.Cmder { return onceCmd{c.Cmd.Clone().(*redis.Cmd)} }

// evaluate runs a script once, by its digest if the server knows it.
func evaluate(ctx context.Context, rdb redis.UniversalClient, s *script, keys []string, argv []any) ([]int64, error) {
	reply, err := process(ctx, rdb, "evalsha", s.sha, keys, argv)
	if redis.HasErrorPrefix(err, "NOSCRIPT") {
		reply, err = process(ctx, rdb, "eval", s.source, keys, argv)
	}
	return reply, err
}

func process(ctx context.Context, rdb redis.UniversalClient, command, program string, keys []string, argv []any) ([]int64, error) {
	words := make([]any, 0, 3+len(keys)+len(argv))
	words = append(words, command, program, len(keys))
	for _, k := range keys {
		words = append(words, k)
	}
	cmd := onceCmd{redis.NewCmd(ctx, append(words, argv...)...)}
	cmd.SetFirstKeyPos(3) // a cluster routes by it
	if err := rdb.Process(ctx, cmd); err != nil {
		return nil, err
	}
	return cmd.Int64Slice()
}

// verdict is what an error says about the request.
type verdict int

const (
	done    verdict = iota // executed, answered
	unsent                 // not executed for sure; worth another try
	refused                // not executed for sure; another try would end the same
	unknown                // executed or not
)

// passing are the server's errors that go away, with nothing executed.
var passing = []string{
	"LOADING", "READONLY", "BUSY", "NOREPLICAS", "MASTERDOWN", "CLUSTERDOWN", "TRYAGAIN", "MOVED", "ASK",
	"max number of clients reached", // HasErrorPrefix takes "ERR " off
}

// notSent wraps the error of a step before the request itself.
type notSent struct{ error }

func (e *notSent) Unwrap() error { return e.error }

func judge(err error) verdict {
	var before *notSent
	var reply redis.Error
	var dial *net.OpError
	switch {
	case err == nil:
		return done
	case errors.As(err, &before) && judge(before.error) == unknown:
		return unsent
	case errors.As(err, &reply):
		for _, prefix := range passing {
			if redis.HasErrorPrefix(err, prefix) {
				return unsent
			}
		}
		return refused
	case errors.As(err, &dial) && dial.Op == "dial",
		errors.Is(err, redis.ErrPoolTimeout), errors.Is(err, redis.ErrPoolExhausted):
		return unsent
	case errors.Is(err, redis.ErrClosed):
		return refused
	}
	return unknown
}

// explain puts our sentinel beside the server's words where there is one.
func explain(err error) error {
	if redis.HasErrorPrefix(err, "WRONGTYPE") || strings.Contains(err.Error(), "redisson: counter is not an integer") {
		return fmt.Errorf("%w: %w", ErrWrongType, err)
	}
	return err
}

const (
	firstPause = 5 * time.Millisecond
	lastPause  = 500 * time.Millisecond
)

// pause waits before try number n+1, longer each time, half of it by chance so
// that the clients of a server that comes back do not all knock at once. It
// returns false when ctx ends first.
func pause(ctx context.Context, n int) bool {
	d := min(firstPause<<min(n, 10), lastPause)
	t := time.NewTimer(d/2 + rand.N(d/2))
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
