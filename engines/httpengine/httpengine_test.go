//go:build unix

package httpengine_test

import (
	"context"
	"net"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"sema"
	"sema/engines/httpengine"
	"sema/engines/memengine"
	"sema/engines/redisengine"
	"sema/enginetest"
	"sema/internal/fixture/expect"
	"sema/internal/fixture/opened"
	"sema/internal/fixture/pipenet"
	"sema/internal/fixture/redistest"
	"sema/server"
)

func TestMain(m *testing.M) {
	enginetest.Main(redistest.Settled(m), func(url string) (sema.Engine, error) { return httpengine.New(url, nil) })
}

func TestPromisesOverMemory(t *testing.T) {
	t.Parallel()
	enginetest.Run(t, overMemory(nil))
}

func TestPromisesWithoutUpgrades(t *testing.T) {
	t.Parallel()
	enginetest.Run(t, overMemory(withoutUpgrades))
}

func TestPromisesOverRedis(t *testing.T) {
	t.Parallel()
	enginetest.Run(t, overRedis)
}

func TestPromisesThroughTwoServers(t *testing.T) {
	t.Parallel()
	enginetest.Run(t, overTwo)
}

func TestProcessesOverRedis(t *testing.T) {
	t.Parallel()
	enginetest.RunProcesses(t, overRedis(t), 4)
}

// restartable is a server that can be killed and started again. With a listener in memory
// it leaves no goroutine after the test, so it works in a bubble of testing/synctest.
type restartable struct {
	tb        testing.TB
	newEngine func() sema.Engine // makes the engine of each new server
	listen    func() net.Listener
	wrap      func(http.Handler) http.Handler // puts a proxy in front of the server

	mu       sync.Mutex
	listener net.Listener
	http     *http.Server
	s        *server.Server
	e        sema.Engine
	done     chan struct{}
}

// serve starts a server. By default it listens on a socket and has no proxy in front.
func serve(tb testing.TB, newEngine func() sema.Engine, listen func() net.Listener, wrap func(http.Handler) http.Handler) *restartable {
	if listen == nil {
		listen = samePort(tb)
	}
	if wrap == nil {
		wrap = func(h http.Handler) http.Handler { return h }
	}
	r := &restartable{tb: tb, newEngine: newEngine, listen: listen, wrap: wrap}
	r.start()
	tb.Cleanup(r.kill)
	return r
}

// samePort returns a function that listens on the same port each time.
func samePort(tb testing.TB) func() net.Listener {
	addr := "127.0.0.1:" + strconv.Itoa(redistest.FreePort(tb)) // no other program's connection takes it meanwhile
	return func() net.Listener {
		l, err := net.Listen("tcp", addr)
		expect.OK(tb, err)
		addr = l.Addr().String()
		return l
	}
}

// inMemory listens in memory.
func inMemory() net.Listener { return pipenet.Listen() }

// withoutUpgrades is a proxy that supports plain HTTP only.
func withoutUpgrades(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r.Header.Del("Upgrade")
		h.ServeHTTP(w, r)
	})
}

func (r *restartable) start() {
	l := r.listen()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.listener, r.e = l, r.newEngine()
	s, err := server.New(r.e, nil)
	if err != nil {
		panic(err) // start also runs outside the test's goroutine
	}
	r.s = s
	h, done := &http.Server{Handler: r.wrap(r.s)}, make(chan struct{})
	r.http, r.done = h, done
	go func() { defer close(done); _ = h.Serve(l) }()
}

// kill cuts all connections, as kill -9 would, and then closes the server and its engine,
// because they share the test's process.
func (r *restartable) kill() {
	_ = r.http.Close()
	<-r.done
	r.s.Close()
	_ = r.e.Close()
}

func (r *restartable) restart(testing.TB) {
	r.kill()
	time.Sleep(time.Millisecond) // a new process starts later than the old one ends
	r.start()
}

func (r *restartable) address() string { return r.listener.Addr().String() }

// client makes an engine for the server, as in another process.
func (r *restartable) client(tb testing.TB) sema.Engine {
	c, err := httpengine.New("http://"+r.address()+"/", nil)
	expect.OK(tb, err)
	tb.Cleanup(func() { _ = c.Close() })
	if _, virtual := r.listener.(*pipenet.Listener); virtual {
		c.DialBy(func(ctx context.Context, network, _ string) (net.Conn, error) {
			r.mu.Lock()
			now := r.address()
			r.mu.Unlock()
			return pipenet.Dial(ctx, network, now)
		})
	}
	return c
}

func (r *restartable) semaphore(limit int, o *sema.Options) *sema.Semaphore {
	return opened.Semaphore(r.tb, r.client(r.tb), r.tb.Name(), limit, o)
}

func memory() sema.Engine { return memengine.New() }

// overMemory makes servers that keep semaphores in memory, and lose them in a restart.
func overMemory(wrap func(http.Handler) http.Handler) func(tb testing.TB) enginetest.Store {
	return func(tb testing.TB) enginetest.Store {
		r := serve(tb, memory, inMemory, wrap)
		return enginetest.Store{Virtual: true, Forget: r.restart, Client: r.client}
	}
}

// unclosed is an engine that stays open when its server closes it.
type unclosed struct{ sema.Engine }

func (unclosed) Close() error { return nil }

func overSameMemory(tb testing.TB) *restartable {
	e := memengine.New()
	tb.Cleanup(func() { _ = e.Close() })
	return serve(tb, func() sema.Engine { return unclosed{e} }, inMemory, nil)
}

func redisAt(tb testing.TB, s *redistest.Server) sema.Engine {
	rdb := redis.NewClient(&redis.Options{Addr: s.Addr(), ContextTimeoutEnabled: true})
	e, err := redisengine.New(rdb, nil)
	expect.OK(tb, err)
	tb.Cleanup(func() {
		_ = e.Close()
		_ = rdb.Close()
	})
	return e
}

// overSameRedis makes a server with a Redis that outlives it.
func overSameRedis(tb testing.TB, s *redistest.Server) *restartable {
	return serve(tb, func() sema.Engine { return redisAt(tb, s) }, nil, nil)
}

// overTwo makes two servers with one Redis. Clients use them alternately.
func overTwo(tb testing.TB) enginetest.Store {
	s := redistest.Start(tb)
	servers := []*restartable{overSameRedis(tb, s), overSameRedis(tb, s)}
	var clients atomic.Int64
	return enginetest.Store{
		Client: func(tb testing.TB) sema.Engine { return servers[clients.Add(1)%2].client(tb) },
		Freeze: s.Stop, Thaw: s.Continue, Forget: func(testing.TB) { s.Restart() },
	}
}

func overRedis(tb testing.TB) enginetest.Store {
	s := redistest.Start(tb)
	r := overSameRedis(tb, s)
	return enginetest.Store{
		URL: "http://" + r.address(), Client: r.client,
		Freeze: s.Stop, Thaw: s.Continue, Forget: func(testing.TB) { s.Restart() },
	}
}
