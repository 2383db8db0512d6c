package redisson

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"sema/internal/rediserror"
)

// onceCmd is a command that go-redis must not send again by itself, however
// many retries the user's client has. After a lost answer it may have been
// executed, and only this package knows whether a second copy is harmless.
type onceCmd struct{ *redis.Cmd }

// NoRetry tells go-redis not to send the command again.
func (onceCmd) NoRetry() bool { return true }

// Clone copies the command as one that is not sent again either.
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

// outcome is what became of a request.
type outcome int

const (
	answered  outcome = iota // executed, and here is the answer
	sendAgain                // certainly not executed; another try may succeed
	rejected                 // the server refuses it; another try would end the same
	uncertain                // executed or not
)

// outcomeOf sorts the error of a request that was sent once, or that failed before
// it was sent.
func outcomeOf(err error, sent bool) outcome {
	meaning := rediserror.Sort(err)
	switch {
	case err == nil:
		return answered
	case meaning.NotExecuted && meaning.Temporary:
		return sendAgain
	case meaning.NotExecuted, rediserror.FromServer(err):
		return rejected
	case sent:
		return uncertain
	}
	return sendAgain
}

// explain wraps ErrWrongType too, if that is what the server's words mean.
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

// pause waits before try number n+1, longer each time. Half of it is random, so
// that not all clients ask at once when a server comes back. It returns false
// when ctx ends first.
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
