//go:build unix

package httpengine_test

import (
	"context"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"sema"
	"sema/engine"
	"sema/engine/httpengine"
	"sema/engine/memengine"
	"sema/engine/redisengine"
	"sema/enginetest"
	"sema/internal/fixture/expect"
	"sema/internal/fixture/pipenet"
	"sema/internal/fixture/redistest"
	"sema/server"
)

// served is a server that can be killed and started again. Reached in memory, it
// leaves nothing behind when the test ends: so it may be within a bubble of
// testing/synctest.
type served struct {
	tb     testing.TB
	over   func() engine.Engine // another process's engine each time
	listen func() net.Listener
	front  func(http.Handler) http.Handler // what is before it

	mu       sync.Mutex
	listener net.Listener
	http     *http.Server
	s        *server.Server
	e        engine.Engine
	done     chan struct{}
}

// serve starts a server. A listen or front of nil is a socket or nothing.
func serve(tb testing.TB, over func() engine.Engine, listen func() net.Listener, front func(http.Handler) http.Handler) *served {
	if listen == nil {
		listen = sockets(tb)
	}
	if front == nil {
		front = func(h http.Handler) http.Handler { return h }
	}
	r := &served{tb: tb, over: over, listen: listen, front: front}
	r.start()
	tb.Cleanup(r.kill)
	return r
}

// sockets listens at the same port each time.
func sockets(tb testing.TB) func() net.Listener {
	addr := "127.0.0.1:0"
	return func() net.Listener {
		l, err := net.Listen("tcp", addr)
		expect.OK(tb, err)
		addr = l.Addr().String()
		return l
	}
}

// inMemory listens in memory.
func inMemory() net.Listener { return pipenet.Listen() }

// withoutUpgrades is in front of a server, and knows plain HTTP only.
func withoutUpgrades(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r.Header.Del("Upgrade")
		h.ServeHTTP(w, r)
	})
}

func (r *served) start() {
	l := r.listen()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.listener, r.e = l, r.over()
	s, err := server.New(r.e, nil)
	if err != nil {
		panic(err) // in whatever goroutine starts it again
	}
	r.s = s
	h, done := &http.Server{Handler: r.front(r.s)}, make(chan struct{})
	r.http, r.done = h, done
	go func() { defer close(done); _ = h.Serve(l) }()
}

// kill cuts all connections, as kill -9 does. What the process then leaves
// behind in this test is closed.
func (r *served) kill() {
	_ = r.http.Close()
	<-r.done
	r.s.Close()
	_ = r.e.Close()
}

func (r *served) restart(testing.TB) {
	r.kill()
	time.Sleep(time.Millisecond) // a process does not start at the instant that another one ends
	r.start()
}

func (r *served) address() string { return r.listener.Addr().String() }

// client is an engine of the server, as another process would have it.
func (r *served) client(tb testing.TB) sema.Engine {
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

func (r *served) semaphore(limit int, o *sema.Options) *sema.Semaphore {
	s, err := sema.New(r.client(r.tb), r.tb.Name(), limit, o)
	expect.OK(r.tb, err)
	r.tb.Cleanup(func() { _ = s.Close() })
	return s
}

func memory() engine.Engine { return memengine.New() }

// overMemory is a server over memory, which forgets everything if it is restarted.
func overMemory(listen func() net.Listener, front func(http.Handler) http.Handler) func(tb testing.TB) enginetest.Store {
	return func(tb testing.TB) enginetest.Store {
		r := serve(tb, memory, listen, front)
		_, virtual := r.listener.(*pipenet.Listener)
		return enginetest.Store{Virtual: virtual, Forget: r.restart, Client: r.client}
	}
}

// survivor is a memory engine that outlives the server in front of it.
type survivor struct{ engine.Engine }

func (survivor) Close() error { return nil }

func overSameMemory(tb testing.TB) *served {
	e := memengine.New()
	tb.Cleanup(func() { _ = e.Close() })
	return serve(tb, func() engine.Engine { return survivor{e} }, inMemory, nil)
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

// overSameRedis is a server over a Redis that goes on when the server is killed.
func overSameRedis(tb testing.TB, s *redistest.Server) *served {
	return serve(tb, func() engine.Engine { return redisAt(tb, s) }, nil, nil)
}

// overTwo is two servers over one Redis, whose clients are at either in turn.
func overTwo(tb testing.TB) enginetest.Store {
	s := redistest.Start(tb)
	servers := []*served{overSameRedis(tb, s), overSameRedis(tb, s)}
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
