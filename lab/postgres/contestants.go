package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"sema"
	"sema/engines/httpengine"
	"sema/internal/measure"
	"sema/server"
)

// work is what contestants do: processes with so many goroutines each share names, each with a limit, and hold
// what they get for a while.
type work struct {
	row                                 string
	processes, goroutines, names, limit int
	hold                                time.Duration
	poll                                time.Duration // between two looks of those who wait and are not told
}

func (w work) name(n int) string { return fmt.Sprint(w.row, "-", n) }

// crew are the workers of all processes, at a gate that takes from a process a permit of a name.
func (w work) crew(take func(ctx context.Context, process, name int) (back func(context.Context) error, err error)) *measure.Crew {
	next := make([]atomic.Int64, w.processes*w.goroutines)
	return measure.NewCrew(measure.Gate{Unlimited: true, Work: func(ctx context.Context, worker int, held func()) error {
		name := (worker + int(next[worker].Add(1))) % w.names
		back, err := take(ctx, worker/w.goroutines, name)
		if err != nil {
			return err
		}
		held()
		return back(context.WithoutCancel(ctx))
	}}, w.processes*w.goroutines, w.hold)
}

// sema is what this is about; engines are those of the processes.
func (b *bench) sema(w work, engines func(process int) (sema.Engine, error)) (*measure.Crew, error) {
	sems := make([][]*sema.Semaphore, w.processes)
	for i := range sems {
		e, err := engines(i)
		for n := range w.names {
			if err != nil {
				return nil, err
			}
			var s *sema.Semaphore
			s, err = b.semaphore(e, w.name(n), w.limit)
			sems[i] = append(sems[i], s)
		}
	}
	return w.crew(func(ctx context.Context, process, name int) (func(context.Context) error, error) {
		p, err := sems[process][name].Acquire(ctx)
		if err != nil {
			return nil, err
		}
		return func(context.Context) error { return p.Release() }, nil
	}), nil
}

// served is sema with one sema serve in front of the database.
func (b *bench) served(ctx context.Context, w work) (*measure.Crew, error) {
	e, err := b.engine(ctx)
	if err != nil {
		return nil, err
	}
	s, err := server.New(e, nil)
	if err != nil {
		return nil, err
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	h := &http.Server{Handler: s, ReadHeaderTimeout: time.Minute}
	go func() { _ = h.Serve(l) }() // until it is closed
	b.closing = append(b.closing, func() { s.Close(); _ = h.Close() })
	return b.sema(w, func(int) (sema.Engine, error) {
		e, err := httpengine.New("http://"+l.Addr().String(), nil)
		if err == nil {
			b.closing = append(b.closing, func() { _ = e.Close() })
		}
		return e, err
	})
}

// pools are of the processes, for those who need a connection for each goroutine.
func (b *bench) pools(ctx context.Context, w work) (all []*pgxpool.Pool, err error) {
	for range w.processes {
		p, err := b.pool(ctx, w.goroutines)
		if err != nil {
			return nil, err
		}
		all = append(all, p)
	}
	return all, nil
}

// slots is a table of slots with leases. An acquire updates a free one.
func (b *bench) slots(ctx context.Context, w work) (*measure.Crew, error) {
	pools, err := b.pools(ctx, w)
	if err != nil {
		return nil, err
	}
	for n := range w.names {
		if _, err := pools[0].Exec(ctx, "INSERT INTO slots SELECT $1, g, '', '-infinity' FROM generate_series(1, $2::int) g", w.name(n), w.limit); err != nil {
			return nil, err
		}
	}
	return w.crew(func(ctx context.Context, process, n int) (func(context.Context) error, error) {
		name, owner, slot := w.name(n), fmt.Sprint(process), 0
		for slot == 0 {
			err := pools[process].QueryRow(ctx, `UPDATE slots SET owner = $2, until = now() + '30s' WHERE (name, slot) = (
				SELECT name, slot FROM slots WHERE name = $1 AND until < now() LIMIT 1 FOR UPDATE SKIP LOCKED) RETURNING slot`, name, owner).Scan(&slot)
			if err = w.again(ctx, err); err != nil {
				return nil, err
			}
		}
		return func(ctx context.Context) error {
			_, err := pools[process].Exec(ctx, "UPDATE slots SET owner = '', until = '-infinity' WHERE name = $1 AND slot = $2 AND owner = $3", name, slot, owner)
			return err
		}, nil
	}), nil
}

// again waits before the next try if err says that no row was free. Otherwise
// it returns err.
func (w work) again(ctx context.Context, err error) error {
	if !errors.Is(err, pgx.ErrNoRows) {
		return err
	}
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(w.poll):
		return nil
	}
}

// advisory is one of so many advisory locks, which a connection has as long as it is held.
func (b *bench) advisory(ctx context.Context, w work) (*measure.Crew, error) {
	pools, err := b.pools(ctx, w)
	if err != nil {
		return nil, err
	}
	return w.crew(func(ctx context.Context, process, n int) (func(context.Context) error, error) {
		for key := 0; ; {
			c, err := pools[process].Acquire(ctx)
			if err != nil {
				return nil, err
			}
			err = c.QueryRow(ctx, "SELECT k FROM generate_series(1, $2::int) k WHERE pg_try_advisory_lock(hashtext($1), k) LIMIT 1", w.name(n), w.limit).Scan(&key)
			if err == nil {
				return func(ctx context.Context) error {
					defer c.Release()
					_, err := c.Exec(ctx, "SELECT pg_advisory_unlock(hashtext($1), $2)", w.name(n), key)
					return err
				}, nil
			}
			c.Release()
			if err = w.again(ctx, err); err != nil {
				return nil, err
			}
		}
	}), nil
}
