package main

import (
	"cmp"
	"context"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/redis/go-redis/v9"

	"sema/engines/fileengine"
	"sema/engines/pgengine"
	"sema/engines/redisengine"
	"sema/internal/protocol"
	"sema/lab/faults/ground"
)

// place is what a link leads to: an engine, and below it a client of Redis or a pool of PostgreSQL's, or
// none.
type place struct {
	protocol.Engine
	rdb  redis.UniversalClient
	pool *pgxpool.Pool
}

// open makes the engine that a link leads to.
func open(link ground.Link, lease time.Duration) (*place, error) {
	if dir, ok := strings.CutPrefix(link.URL, "file://"); ok {
		e, err := fileengine.New(dir, nil)
		return &place{Engine: e}, err
	}
	if strings.HasPrefix(link.URL, "postgres://") {
		pool, o, err := link.Postgres(context.Background())
		if err != nil {
			return nil, err
		}
		e, err := pgengine.New(pool, o)
		return &place{Engine: e, pool: pool}, err
	}
	// As the program has them (cmd/sema/internal/cli).
	o, err := link.Options(max(min(3*time.Second, lease/6), 50*time.Millisecond))
	if err != nil {
		return nil, err
	}
	o.MaxRetries = 1
	rdb := redis.NewUniversalClient(o)
	e, err := redisengine.New(rdb, &redisengine.Options{Replicas: link.Replicas})
	return &place{Engine: e, rdb: rdb}, err
}

// Close closes the engine and what it was given.
func (p *place) Close() error {
	err := p.Engine.Close()
	if p.rdb != nil {
		err = cmp.Or(err, p.rdb.Close())
	}
	if p.pool != nil {
		p.pool.Close()
	}
	return err
}
