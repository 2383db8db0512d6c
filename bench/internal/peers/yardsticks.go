package peers

import (
	"context"
	"errors"

	"github.com/redis/go-redis/v9"
)

// noop does nothing at all on the server.
const noop = "return 1"

// evaluator is what both yardsticks send their script with.
type evaluator interface {
	EvalSha(ctx context.Context, sha string, keys []string, args ...any) *redis.Cmd
}

// noopGate pays for what a semaphore in Lua has to pay at least: one EVALSHA
// to acquire, one to release.
type noopGate struct {
	rdb  *redis.Client
	eval evaluator
	sha  string
	name string
	stop func() error
}

func openNoop(ctx context.Context, s Setup) (Gate, error) {
	rdb, err := connect(ctx, s.URL)
	if err != nil {
		return nil, err
	}
	return newNoop(ctx, s, rdb, rdb, func() error { return nil })
}

func openNoopPipeline(ctx context.Context, s Setup) (Gate, error) {
	rdb, err := connect(ctx, s.URL)
	if err != nil {
		return nil, err
	}
	pipeline, err := rdb.AutoPipeline()
	if err != nil {
		return nil, errors.Join(err, rdb.Close())
	}
	return newNoop(ctx, s, rdb, pipeline, pipeline.Close)
}

func newNoop(ctx context.Context, s Setup, rdb *redis.Client, eval evaluator, stop func() error) (Gate, error) {
	sha, err := rdb.ScriptLoad(ctx, noop).Result()
	if err != nil {
		return nil, errors.Join(err, stop(), rdb.Close())
	}
	return noopGate{rdb, eval, sha, s.Name, stop}, nil
}

func (g noopGate) Work(ctx context.Context, held func()) error {
	if err := g.eval.EvalSha(ctx, g.sha, []string{g.name}).Err(); err != nil {
		return err
	}
	held()
	return g.eval.EvalSha(ctx, g.sha, []string{g.name}).Err()
}

func (g noopGate) Close() error { return errors.Join(g.stop(), g.rdb.Close()) }
