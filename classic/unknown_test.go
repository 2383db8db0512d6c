package classic

import (
	"context"
	"errors"
	"io"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"sema/internal/fixture/redistest"
)

// TestReplyLostForGood has Redis execute a request, and the client neither get
// the answer nor ask again. The call must return an error and leave no permit
// behind.
func TestReplyLostForGood(t *testing.T) {
	t.Parallel()
	forEach(t, func(t *testing.T, v variant, srv *redistest.Server) {
		proxy := redistest.StartProxy(t, srv.Addr())
		rdb := redis.NewClient(&redis.Options{Addr: proxy.Addr(), MaxRetries: -1})
		t.Cleanup(func() { _ = rdb.Close() })
		rdb.AddHook(redistest.Around(func(...string) func(error) {
			return func(err error) {
				if err != nil {
					proxy.Resume()
				}
			}
		}))
		admin := srv.Client()
		sem := v.new(t, rdb, 1, Options{})
		release(t, sem, must(t, sem), true) // Redis has the scripts

		proxy.LoseReplies()
		if _, ok, err := sem.Acquire(t.Context()); err == nil || ok {
			t.Errorf("Acquire = %v, %v", ok, err)
		}
		for _, key := range admin.Keys(t.Context(), "*").Val() {
			if key != "sem:counter" {
				t.Errorf("left behind: %s", key)
			}
		}
	})
}

// TestOneReplyLost has go-redis send a request again that was executed, as it
// does with all requests but transactions. Redis and the caller must agree
// afterwards: one permit, or none.
func TestOneReplyLost(t *testing.T) {
	t.Parallel()
	forEach(t, func(t *testing.T, v variant, srv *redistest.Server) {
		var lose atomic.Int64 // the reply to the n-th request from now
		rdb := redis.NewClient(&redis.Options{
			Addr: srv.Addr(), PoolSize: 1,
			Dialer: func(ctx context.Context, network, addr string) (net.Conn, error) {
				conn, err := (&net.Dialer{}).DialContext(ctx, network, addr)
				return &forgetful{Conn: conn, lose: &lose}, err
			},
		})
		t.Cleanup(func() { _ = rdb.Close() })
		admin := srv.Client()
		sem := v.new(t, rdb, 1, Options{})
		release(t, sem, must(t, sem), true)

		for n := range int64(4) {
			lose.Store(n + 1)
			id, ok, err := sem.Acquire(t.Context())
			lose.Store(0)
			if err != nil && !errors.Is(err, io.EOF) {
				t.Errorf("reply %d lost: %v", n+1, err)
			}
			held := admin.ZCard(t.Context(), "sem").Val()
			if v.name == "Clockless" || v.name == "Clockless Lua" {
				held = admin.ZCard(t.Context(), "sem:owner").Val()
			}
			if v.limit == 1 {
				held = admin.Exists(t.Context(), "lock:sem").Val()
			}
			if ok && held != 1 || !ok && held != 0 {
				t.Errorf("reply %d lost: acquired %v, %d held in Redis", n+1, ok, held)
			}
			if ok {
				release(t, sem, id, true)
			} else if v.limit == 1 || v.name == "Scripted" || v.name == "Clockless Lua" {
				t.Errorf("reply %d lost: no permit, though these can ask again", n+1)
			}
			mustBeFree(t, sem)
		}
	})
}

func mustBeFree(t *testing.T, s Semaphore) {
	t.Helper()
	release(t, s, must(t, s), true)
}

// forgetful is a connection that ends in place of one reply, as if the server
// had closed it.
type forgetful struct {
	net.Conn
	lose  *atomic.Int64
	ended atomic.Bool
}

func (c *forgetful) Read(b []byte) (int, error) {
	if c.ended.Load() {
		return 0, io.EOF
	}
	n, err := c.Conn.Read(b)
	if n > 0 && c.lose.Load() > 0 && c.lose.Add(-1) == 0 {
		c.ended.Store(true)
		return 0, io.EOF
	}
	return n, err
}

func TestContextEndsBetweenTwoRequests(t *testing.T) {
	t.Parallel()
	for _, command := range []string{"zrank", "zrem"} { // the second step, the cleaning up
		srv := redistest.Start(t)
		admin := srv.Client()
		ctx, cancel := context.WithCancel(t.Context())
		sem := made(t, NewFair, interrupted(srv, command, cancel), 1, Options{})
		if command == "zrem" {
			must(t, made(t, NewFair, admin, 1, Options{}))
		}
		before := admin.ZCard(t.Context(), "sem").Val()
		_, ok, err := sem.Acquire(ctx)
		if ok || command == "zrank" && !errors.Is(err, context.Canceled) {
			t.Errorf("%s: Acquire = %v, %v", command, ok, err)
		}
		if n := admin.ZCard(t.Context(), "sem").Val(); n != before {
			t.Errorf("%s: %d entries, want %d", command, n, before)
		}
		cancel()
	}
}

// TestDeadlineEndsACallOnTheWire: only the deadline can end the call, because no
// answer comes and the client has no timeout of its own.
func TestDeadlineEndsACallOnTheWire(t *testing.T) {
	t.Parallel()
	forEach(t, func(t *testing.T, v variant, srv *redistest.Server) {
		proxy := redistest.StartProxy(t, srv.Addr())
		rdb := redis.NewClient(&redis.Options{Addr: proxy.Addr(), ContextTimeoutEnabled: true, ReadTimeout: -1, WriteTimeout: -1})
		t.Cleanup(func() { _ = rdb.Close() })
		sem := v.new(t, rdb, 1, Options{})
		id := must(t, sem)
		release(t, sem, id, true)

		proxy.Silence()
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		defer cancel()
		if _, ok, err := sem.Acquire(ctx); err == nil || ok {
			t.Errorf("Acquire = %v, %v", ok, err)
		}
		ctx, cancel = context.WithTimeout(t.Context(), 20*time.Millisecond)
		defer cancel()
		if ok, err := sem.Release(ctx, id); err == nil || ok {
			t.Errorf("Release = %v, %v", ok, err)
		}
	})
}
