//go:build unix

package pgengine_test

import (
	"context"
	"net/url"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"sema"
	"sema/engine/pgengine"
	"sema/enginetest"
	"sema/lab/expect"
)

func TestMain(m *testing.M) {
	enginetest.Main(m, func(address string) (sema.Engine, error) {
		u, err := url.Parse(address)
		if err != nil {
			return nil, err
		}
		o := &pgengine.Options{}
		if u.Query().Has("polls") {
			o.Poll = 50 * time.Millisecond
		}
		pool, err := pgxpool.New(context.Background(), "postgres://sema@/postgres?host="+u.Path)
		if err != nil {
			return nil, err
		}
		return pgengine.New(pool, o)
	})
}

// engineAt is an engine on a pool of its own, as another process would be.
func engineAt(tb testing.TB, address string, o *pgengine.Options) sema.Engine {
	tb.Helper()
	config, err := pgxpool.ParseConfig(address)
	expect.OK(tb, err)
	config.MaxConns = 4
	pool, err := pgxpool.NewWithConfig(context.Background(), config)
	expect.OK(tb, err)
	e, err := pgengine.New(pool, o)
	expect.OK(tb, err)
	tb.Cleanup(func() {
		_ = e.Close()
		pool.Close()
	})
	return e
}

func open(o *pgengine.Options) func(tb testing.TB) enginetest.Store {
	return func(tb testing.TB) enginetest.Store {
		s := startServer(tb)
		address := s.Dir
		if o != nil {
			address += "?polls"
		}
		return enginetest.Store{
			URL:    address,
			Freeze: func() { s.signal(syscall.SIGSTOP) },
			Thaw:   func() { s.signal(syscall.SIGCONT) },
			Client: func(tb testing.TB) sema.Engine { return engineAt(tb, s.url(), o) },
		}
	}
}

var polling = &pgengine.Options{Poll: 50 * time.Millisecond}

func TestPromises(t *testing.T) {
	t.Parallel()
	enginetest.Run(t, open(nil))
}

func TestPromisesOfThoseWhoKeep(t *testing.T) {
	t.Parallel()
	enginetest.Run(t, func(tb testing.TB) enginetest.Store {
		store := open(nil)(tb)
		store.Keep = true
		return store
	})
}

func TestPromisesOfThoseWhoPoll(t *testing.T) {
	t.Parallel()
	enginetest.Run(t, open(polling))
}

func TestProcesses(t *testing.T) {
	t.Parallel()
	enginetest.RunProcesses(t, open(nil)(t), 4)
}

func TestProcessesThatPoll(t *testing.T) {
	t.Parallel()
	enginetest.RunProcesses(t, open(polling)(t), 4)
}

func TestKeepers(t *testing.T) {
	t.Parallel()
	enginetest.RunKeepers(t, open(nil)(t))
}

func BenchmarkEngine(b *testing.B) { enginetest.Benchmark(b, open(nil)) }
