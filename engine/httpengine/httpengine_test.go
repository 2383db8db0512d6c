//go:build unix

package httpengine_test

import (
	"flag"
	"net/http"
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
	"sema/lab/expect"
	"sema/lab/pipenet"
	"sema/server"
)

func TestMain(m *testing.M) {
	flag.Parse()
	_ = flag.Set("test.parallel", "8") // they mostly wait for Redis
	enginetest.Main(m, func(url string) (sema.Engine, error) { return httpengine.New(url, nil) })
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
	expect.OK(tb, err)
	tb.Cleanup(func() { _ = e.Close() })
	return e
}

// overMemory is a server over memory, behind what front puts before it. Where
// serve connects in memory, nothing is left of it all when the test ends: so it
// may be within a bubble of testing/synctest.
func overMemory(serve func(http.Handler) *httptest.Server, front func(http.Handler) http.Handler) func(tb testing.TB) enginetest.Store {
	return func(tb testing.TB) enginetest.Store {
		e := memengine.New()
		s := server.New(e, nil)
		h := serve(front(s))
		tb.Cleanup(func() {
			s.Close()
			h.Close()
			_ = e.Close()
		})
		_, virtual := h.Listener.(*pipenet.Listener)
		return enginetest.Store{Virtual: virtual, Client: func(tb testing.TB) sema.Engine {
			c := client(tb, h.URL+"/")
			if virtual {
				c.DialBy(pipenet.Dial)
			}
			return c
		}}
	}
}

func pipes(h http.Handler) *httptest.Server { return pipenet.Serve(h, nil) }

func asItIs(h http.Handler) http.Handler { return h }

// withoutUpgrades is in front of a server, and knows plain HTTP only.
func withoutUpgrades(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r.Header.Del("Upgrade")
		h.ServeHTTP(w, r)
	})
}

func redisAt(tb testing.TB, s *redistest.Server) engine.Engine {
	rdb := redis.NewClient(&redis.Options{Addr: s.Addr(), ContextTimeoutEnabled: true})
	e, err := redisengine.New(rdb, nil)
	expect.OK(tb, err)
	tb.Cleanup(func() {
		_ = e.Close()
		_ = rdb.Close()
	})
	return e
}

// needsRedis leaves out of make quick what needs a server.
func needsRedis(t *testing.T) {
	if testing.Short() {
		t.Skip("it needs a redis-server")
	}
}

func overRedis(tb testing.TB) enginetest.Store {
	s := redistest.Start(tb)
	url := serve(tb, redisAt(tb, s), nil)
	return enginetest.Store{
		URL: url, Freeze: s.Stop, Thaw: s.Continue, Forget: func(testing.TB) { s.Restart() },
		Client: func(tb testing.TB) sema.Engine { return client(tb, url) },
	}
}

func TestPromisesOverMemory(t *testing.T) {
	t.Parallel()
	enginetest.Run(t, overMemory(pipes, asItIs))
}

func TestPromisesWithoutUpgrades(t *testing.T) {
	t.Parallel()
	enginetest.Run(t, overMemory(pipes, withoutUpgrades))
}

func TestPromisesOverRedis(t *testing.T) {
	needsRedis(t)
	t.Parallel()
	enginetest.Run(t, overRedis)
}

func TestProcessesOverRedis(t *testing.T) {
	needsRedis(t)
	t.Parallel()
	enginetest.RunProcesses(t, overRedis(t), 4)
}

func BenchmarkOverMemory(b *testing.B) {
	enginetest.Benchmark(b, overMemory(httptest.NewServer, asItIs))
}

func BenchmarkWithoutUpgrades(b *testing.B) {
	enginetest.Benchmark(b, overMemory(httptest.NewServer, withoutUpgrades))
}

func BenchmarkOverRedis(b *testing.B) { enginetest.Benchmark(b, overRedis) }

// What the server's engine does by itself, in the same run.
func BenchmarkDirectRedis(b *testing.B) {
	enginetest.Benchmark(b, func(tb testing.TB) enginetest.Store {
		s := redistest.Start(tb)
		return enginetest.Store{Client: func(tb testing.TB) sema.Engine { return redisAt(tb, s) }}
	})
}
