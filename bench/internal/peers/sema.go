package peers

import (
	"context"
	"errors"

	"github.com/redis/go-redis/v9"

	"sema"
	"sema/engine/memengine"
	"sema/engine/redisengine"
)

// semaGate is sema on either engine.
type semaGate struct {
	sem    *sema.Semaphore
	engine sema.Engine
	rdb    *redis.Client // nil in memory
}

func openSema(ctx context.Context, s Setup) (Gate, error) {
	rdb, err := connect(ctx, s.URL)
	if err != nil {
		return nil, err
	}
	return newSema(redisengine.New(rdb), rdb, s)
}

func openMemory(_ context.Context, s Setup) (Gate, error) {
	g, err := newSema(memengine.New(), nil, s)
	if err != nil {
		return nil, err
	}
	return repeat{g, memoryPairs}, nil
}

func newSema(engine sema.Engine, rdb *redis.Client, s Setup) (Gate, error) {
	sem, err := sema.New(engine, s.Name, s.Limit, &sema.Options{Lease: s.Lease})
	if err != nil {
		return nil, err
	}
	return semaGate{sem, engine, rdb}, nil
}

func (g semaGate) Work(ctx context.Context, held func()) error {
	p, err := g.sem.Acquire(ctx)
	if err != nil {
		return err
	}
	held()
	return p.Release()
}

func (g semaGate) Close() error {
	err := errors.Join(g.sem.Close(), g.engine.Close())
	if g.rdb != nil {
		err = errors.Join(err, g.rdb.Close())
	}
	return err
}
