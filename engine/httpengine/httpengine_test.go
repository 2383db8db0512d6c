//go:build unix

package httpengine_test

import (
	"net/http/httptest"
	"testing"

	"github.com/redis/go-redis/v9"

	"sema"
	"sema/engine"
	"sema/engine/enginetest"
	"sema/engine/httpengine"
	"sema/engine/memengine"
	"sema/engine/redisengine"
	"sema/internal/redistest"
	"sema/server"
)

func TestMain(m *testing.M) {
	enginetest.Main(m, func(url string) (sema.Engine, error) { return httpengine.New(url, nil) })
}

func must(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}

// serve starts a server over an engine, and is its URL.
func serve(tb testing.TB, e engine.Engine, o *server.Options) string {
	s := server.New(e, o)
	h := httptest.NewServer(s)
	tb.Cleanup(func() {
		s.Close()
		h.Close()
	})
	return h.URL
}

// client is an engine of the server at a URL, as another process would have it.
func client(tb testing.TB, url string) *httpengine.Engine {
	e, err := httpengine.New(url, nil)
	must(tb, err)
	tb.Cleanup(func() { _ = e.Close() })
	return e
}

func overMemory(tb testing.TB) enginetest.Store {
	e := memengine.New()
	tb.Cleanup(func() { _ = e.Close() })
	url := serve(tb, e, nil)
	return enginetest.Store{URL: url, Client: func(tb testing.TB) sema.Engine { return client(tb, url) }}
}

func redisAt(tb testing.TB, s *redistest.Server) engine.Engine {
	rdb := redis.NewClient(&redis.Options{Addr: s.Addr(), ContextTimeoutEnabled: true})
	e, err := redisengine.New(rdb, nil)
	must(tb, err)
	tb.Cleanup(func() {
		_ = e.Close()
		_ = rdb.Close()
	})
	return e
}

func overRedis(tb testing.TB) enginetest.Store {
	s := redistest.Start(tb)
	url := serve(tb, redisAt(tb, s), nil)
	return enginetest.Store{
		URL: url, Freeze: s.Stop, Thaw: s.Continue, Forget: func(testing.TB) { s.Restart() },
		Client: func(tb testing.TB) sema.Engine { return client(tb, url) },
	}
}

func TestPromisesOverMemory(t *testing.T) { enginetest.Run(t, overMemory) }

func TestPromisesOverRedis(t *testing.T) { enginetest.Run(t, overRedis) }

func TestProcessesOverRedis(t *testing.T) { enginetest.RunProcesses(t, overRedis(t), 4) }

func BenchmarkOverMemory(b *testing.B) { enginetest.Benchmark(b, overMemory) }

func BenchmarkOverRedis(b *testing.B) { enginetest.Benchmark(b, overRedis) }

// What the server's engine does by itself, in the same run.
func BenchmarkDirectRedis(b *testing.B) {
	enginetest.Benchmark(b, func(tb testing.TB) enginetest.Store {
		s := redistest.Start(tb)
		return enginetest.Store{Client: func(tb testing.TB) sema.Engine { return redisAt(tb, s) }}
	})
}
