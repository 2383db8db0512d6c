package bench

import (
	"context"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"sema/internal/measure"
)

// The names of the baselines.
const (
	plainCalls = "2 no-op calls"
	pipedCalls = "2 no-op calls, autopipelined"
	aChannel   = "Go channel"
)

// baselines are what the machine can do at best in the place of one acquire
// and one release by each of so many workers, worker w of the semaphore
// name(w). On Redis: two calls of a script that does nothing, through a pool of
// connections and, where there are several workers, through go-redis's own
// automatic pipelining. Elsewhere: a Go channel for each name.
func (b *bench) baselines(ctx context.Context, workers int, name func(worker int) string, limit int) (list []measure.Contestant, closing func(), err error) {
	closing = func() {}
	if b.Redis == nil {
		return []measure.Contestant{channels(workers, name, limit)}, closing, nil
	}
	plain, err := noop(ctx, b.Redis, workers, name)
	if err != nil {
		return nil, closing, err
	}
	list = append(list, twice(plainCalls, plain))
	if workers == 1 {
		return list, closing, nil
	}
	// Of the forms that go-redis has, the one that was never slower than the
	// others with 8 to 1,000 goroutines that each wait for their call.
	pipe, err := b.Redis.AutoPipelineWithOptions(&redis.AutoPipelineOptions{MaxBatchSize: 300, MaxConcurrentBatches: 80, Unordered: true})
	if err != nil {
		return nil, closing, err
	}
	closing = func() { _ = pipe.Close() }
	piped, err := noop(ctx, pipe, workers, name)
	if err != nil {
		return nil, closing, err
	}
	return append(list, twice(pipedCalls, piped)), closing, nil
}

// evaler is what no-op calls need of a client.
type evaler interface {
	ScriptLoad(ctx context.Context, script string) *redis.StringCmd
	EvalSha(ctx context.Context, sha string, keys []string, args ...any) *redis.Cmd
}

// noop makes a call of a script that does nothing, with the key of the worker's
// semaphore, so that a cluster sends it the same way.
func noop(ctx context.Context, rdb evaler, workers int, name func(worker int) string) (func(ctx context.Context, worker int) error, error) {
	sha, err := rdb.ScriptLoad(ctx, "return 1").Result()
	if err != nil {
		return nil, fmt.Errorf("load a script that does nothing: %w", err)
	}
	keys := make([][]string, workers)
	for w := range keys {
		keys[w] = []string{stateKey(name(w))}
	}
	return func(ctx context.Context, worker int) error {
		return rdb.EvalSha(ctx, sha, keys[worker]).Err()
	}, nil
}

// twice makes two calls in a row, as acquire and release are.
func twice(who string, call func(ctx context.Context, worker int) error) measure.Contestant {
	return measure.Contestant{Name: who, Do: func(ctx context.Context, worker int) (time.Duration, error) {
		began := time.Now()
		err := call(ctx, worker)
		if err == nil {
			err = call(ctx, worker)
		}
		return time.Since(began), err
	}}
}

// channelUnits is how often a channel is used in a row: once takes no longer
// than to look at the clock.
const channelUnits = 64

// channels are semaphores as Go programs have them: a buffered channel for each
// name.
func channels(workers int, name func(worker int) string, limit int) measure.Contestant {
	all := map[string]chan struct{}{}
	of := make([]chan struct{}, workers)
	for w := range of {
		if all[name(w)] == nil {
			all[name(w)] = make(chan struct{}, limit)
		}
		of[w] = all[name(w)]
	}
	return measure.Contestant{Name: aChannel, Units: channelUnits, Do: func(_ context.Context, w int) (time.Duration, error) {
		for range channelUnits {
			of[w] <- struct{}{}
			<-of[w]
		}
		return 0, nil
	}}
}
