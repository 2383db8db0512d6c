package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"sema"
	"sema/engines/pgengine"
	"sema/internal/fixture/local"
)

// trip is what is added to each round trip: half a millisecond, as between zones of a cloud.
const trip = 500 * time.Microsecond

// cloud makes each commit wait as for a disk with a latency of a millisecond.
var cloud = []string{"-c", "fsync=on", "-c", "commit_delay=1000", "-c", "commit_siblings=0", "-c", "max_connections=600"}

// bench is a server, and what has to be closed.
type bench struct {
	*local.Server
	closing []func()
}

func newBench(ctx context.Context) (*bench, error) {
	s, err := local.Postgres(ctx, cloud...)
	if err != nil {
		return nil, err
	}
	b := &bench{Server: s, closing: []func(){s.Stop}}
	c, err := pgx.Connect(ctx, s.Address)
	if err == nil {
		_, err = c.Exec(ctx, (*pgengine.Options)(nil).SQL())
	}
	if err == nil {
		_, err = c.Exec(ctx, `CREATE TABLE slots (name text, slot int, owner text, until timestamptz NOT NULL, PRIMARY KEY (name, slot)) WITH (fillfactor = 50);
			CREATE TABLE mine (id int PRIMARY KEY, n int NOT NULL) WITH (fillfactor = 50); INSERT INTO mine SELECT g, 0 FROM generate_series(1, 100) g`)
	}
	if err != nil {
		b.close()
		return nil, err
	}
	_ = c.Close(ctx)
	return b, nil
}

func (b *bench) close() { b.closeTo(0) }

// closeTo closes what there is beside the first ones.
func (b *bench) closeTo(first int) {
	for i := len(b.closing) - 1; i >= first; i-- {
		b.closing[i]()
	}
	b.closing = b.closing[:first]
}

// far is a connection whose round trips take longer.
type far struct{ net.Conn }

func (f far) Write(p []byte) (int, error) {
	time.Sleep(trip)
	return f.Conn.Write(p)
}

// pool is one of a process's own.
func (b *bench) pool(ctx context.Context, most int) (*pgxpool.Pool, error) {
	config, err := pgxpool.ParseConfig(b.Address)
	if err != nil {
		return nil, err
	}
	config.MaxConns = int32(most)
	dial := config.ConnConfig.DialFunc
	config.ConnConfig.DialFunc = func(ctx context.Context, network, addr string) (net.Conn, error) {
		c, err := dial(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		return far{c}, nil
	}
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err == nil {
		b.closing = append(b.closing, pool.Close)
	}
	return pool, err
}

// engine is one of a process's own.
func (b *bench) engine(ctx context.Context) (sema.Engine, error) {
	pool, err := b.pool(ctx, 8)
	if err != nil {
		return nil, err
	}
	return b.engineOn(pool)
}

func (b *bench) engineOn(pool *pgxpool.Pool) (sema.Engine, error) {
	e, err := pgengine.New(pool, nil)
	if err == nil {
		b.closing = append(b.closing, func() { _ = e.Close() })
	}
	return e, err
}

func (b *bench) semaphore(e sema.Engine, name string, limit int) (*sema.Semaphore, error) {
	s, err := sema.New(e, name, limit, nil)
	if err == nil {
		b.closing = append(b.closing, func() { _ = s.Close() })
	}
	return s, err
}

// cpu is the time that the server's processes have used; those that have ended are counted by the first one.
func (b *bench) cpu() (sum time.Duration, err error) {
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		return 0, err
	}
	for _, path := range stats {
		text, err := os.ReadFile(path)
		if err != nil {
			continue // it has ended
		}
		_, rest, _ := strings.Cut(string(text), ") ")
		fields := strings.Fields(rest)
		own := filepath.Base(filepath.Dir(path)) == strconv.Itoa(b.PID())
		if len(fields) < 15 || !own && fields[1] != strconv.Itoa(b.PID()) {
			continue
		}
		last := 13 // user and system
		if own {
			last = 15 // and of children that ended
		}
		for _, f := range fields[11:last] {
			n, err := strconv.ParseInt(f, 10, 64)
			if err != nil {
				return 0, fmt.Errorf("%s: %w", path, err)
			}
			sum += time.Duration(n) * time.Second / 100
		}
	}
	return sum, nil
}
