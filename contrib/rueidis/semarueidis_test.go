package semarueidis_test

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"

	"sema"
	"sema/contrib/rueidis"
	"sema/engine"
	"sema/engines/redisengine"
	"sema/internal/fixture/expect"
	"sema/internal/fixture/redistest"
)

// connect makes a rueidis client with small buffers: the suites open thousands.
func connect(tb testing.TB, o rueidis.ClientOption) rueidis.Client {
	tb.Helper()
	o.ReadBufferEachConn, o.WriteBufferEachConn, o.RingScaleEachConn = 4<<10, 4<<10, 8
	client, err := rueidis.NewClient(o)
	expect.OK(tb, err)
	tb.Cleanup(func() {
		client.Close()
		client = nil // package testing keeps this function to the end of all tests
	})
	return client
}

// through is an engine on the client.
func through(tb testing.TB, client rueidis.Client, o rueidis.ClientOption, eo *redisengine.Options) sema.Engine {
	tb.Helper()
	rdb, err := semarueidis.New(client, o)
	expect.OK(tb, err)
	e, err := redisengine.New(rdb, eo)
	expect.OK(tb, err)
	tb.Cleanup(func() {
		_ = e.Close()
		_ = rdb.Close()
		e, rdb = nil, nil
	})
	return e
}

// engineWith is an engine on a client of its own, as another process would be.
func engineWith(tb testing.TB, o rueidis.ClientOption) sema.Engine {
	tb.Helper()
	return through(tb, connect(tb, o), o, nil)
}

func engineAt(tb testing.TB, addrs ...string) sema.Engine {
	tb.Helper()
	return engineWith(tb, rueidis.ClientOption{InitAddress: addrs})
}

// onGoRedis is an engine without rueidis.
func onGoRedis(tb testing.TB, o *redis.Options) sema.Engine {
	tb.Helper()
	o.ContextTimeoutEnabled = true
	rdb := redis.NewClient(o)
	e, err := redisengine.New(rdb, nil)
	expect.OK(tb, err)
	tb.Cleanup(func() {
		_ = e.Close()
		_ = rdb.Close()
		e, rdb = nil, nil
	})
	return e
}

func openSem(tb testing.TB, e sema.Engine, limit int, o *sema.Options) *sema.Semaphore {
	tb.Helper()
	s, err := sema.New(e, "x", limit, o)
	expect.OK(tb, err)
	tb.Cleanup(func() { _ = s.Close() })
	return s
}

// waiter has an acquisition in the queue, and returns what will bring the permit.
func waiter(tb testing.TB, s *sema.Semaphore) <-chan *sema.Permit {
	tb.Helper()
	got, ctx := make(chan *sema.Permit, 1), expect.Within(tb)
	go func() {
		p, err := s.Acquire(ctx)
		if err != nil {
			tb.Errorf("waiting: %v", err)
		}
		got <- p
	}()
	expect.Until(tb, "queueing", func() bool {
		st, err := s.State(ctx)
		expect.OK(tb, err)
		return len(st.Waiters) == 1
	})
	return got
}

// handsOver gives a permit back, and its waiter has it.
func handsOver(tb testing.TB, held *sema.Permit, to <-chan *sema.Permit) {
	tb.Helper()
	expect.OK(tb, held.Release())
	p := <-to
	if p == nil {
		tb.FailNow()
	}
	expect.OK(tb, p.Release())
}

// connections counts those of a kind that a server has, but for the one that asks.
func connections(tb testing.TB, s *redistest.Server, kind string) int {
	tb.Helper()
	list, err := s.Client().Do(expect.Within(tb), "CLIENT", "LIST", "TYPE", kind).Text()
	expect.OK(tb, err)
	return strings.Count(list, "\n") - strings.Count(list, "cmd=client|list")
}

// While nobody waits, an engine uses only the program's connections. A waiter
// needs one more.
func TestConnections(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	o := rueidis.ClientOption{InitAddress: []string{server.Addr()}, PipelineMultiplex: -1} // one connection
	e := through(t, connect(t, o), o, nil)
	ctx := expect.Within(t)
	one, other := openSem(t, e, 1, nil), openSem(t, e, 1, nil)
	held, err := one.Acquire(ctx)
	expect.OK(t, err)
	if n := connections(t, server, "normal"); n != 1 {
		t.Errorf("%d connections; want the one of rueidis", n)
	}
	to := waiter(t, other)
	expect.Until(t, "one connection, and one for notifications", func() bool {
		return connections(t, server, "normal") == 1 && connections(t, server, "pubsub") == 1
	})
	handsOver(t, held, to)
}

// noting is a connection that tells when something is sent.
type noting struct {
	net.Conn
	sent chan<- struct{}
}

func (c noting) Write(b []byte) (int, error) {
	select {
	case c.sent <- struct{}{}:
	default:
	}
	return c.Conn.Write(b)
}

// A caller that gives up leaves the connection to the others that use it.
func TestOthersOnTheConnection(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	sent := make(chan struct{}, 1)
	o := rueidis.ClientOption{
		InitAddress: []string{server.Addr()}, PipelineMultiplex: -1, // one connection
		Dialer: net.Dialer{KeepAlive: time.Hour}, // no pings
		DialCtxFn: func(ctx context.Context, addr string, d *net.Dialer, _ *tls.Config) (net.Conn, error) {
			c, err := d.DialContext(ctx, "tcp", addr)
			return noting{c, sent}, err
		},
	}
	client := connect(t, o)
	s := openSem(t, through(t, client, o, nil), 1, nil)
	ctx := expect.Within(t)
	expect.OK(t, client.Do(ctx, client.B().Ping().Build()).Error())
	<-sent
	const pause = 3 * time.Second
	expect.OK(t, server.Client().Do(ctx, "CLIENT", "PAUSE", pause.Milliseconds(), "ALL").Err())
	ours, theirs := make(chan error, 1), make(chan error, 1)
	short, cancel := context.WithTimeout(ctx, pause/3)
	defer cancel()
	go func() {
		_, err := s.TryAcquire(short)
		ours <- err
	}()
	<-sent
	go func() { theirs <- client.Do(ctx, client.B().Incr().Key("theirs").Build()).Error() }()
	expect.Is(t, <-ours, context.DeadlineExceeded)
	expect.OK(t, <-theirs)
}

// A connection delivers nothing any more, though neither end has closed it. When
// rueidis notices, the client uses another one, and holders keep their permits.
func TestASilentConnection(t *testing.T) {
	t.Parallel()
	type dialer func(ctx context.Context, addr string, d *net.Dialer, _ *tls.Config) (net.Conn, error)
	with := func(timeout time.Duration) func(*testing.T, dialer) sema.Engine {
		return func(t *testing.T, dial dialer) sema.Engine {
			return engineWith(t, rueidis.ClientOption{InitAddress: []string{"its"}, DialCtxFn: dial, ConnWriteTimeout: timeout})
		}
	}
	for what, engine := range map[string]func(*testing.T, dialer) sema.Engine{
		"rueidis":                           with(0),
		"rueidis with ConnWriteTimeout: 2s": with(2 * time.Second),
		"go-redis": func(t *testing.T, dial dialer) sema.Engine {
			return onGoRedis(t, &redis.Options{Dialer: func(ctx context.Context, _, addr string) (net.Conn, error) {
				return dial(ctx, addr, &net.Dialer{}, nil)
			}})
		},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			server := redistest.Start(t)
			proxy := redistest.StartProxy(t, server.Addr())
			t.Cleanup(proxy.Resume)
			var addr atomic.Value
			addr.Store(proxy.Addr())
			s := openSem(t, engine(t, func(ctx context.Context, _ string, d *net.Dialer, _ *tls.Config) (net.Conn, error) {
				return d.DialContext(ctx, "tcp", addr.Load().(string))
			}), 2, nil)
			ctx := expect.Within(t)
			held, err := s.Acquire(ctx)
			expect.OK(t, err)
			addr.Store(server.Addr())
			proxy.Silence()
			start := time.Now()
			p, err := s.Acquire(ctx)
			for err != nil && ctx.Err() == nil {
				p, err = s.Acquire(ctx)
			}
			expect.OK(t, err)
			t.Logf("%s: the next acquisition after %.1f s", what, time.Since(start).Seconds())
			for err = held.Renew(ctx); errors.Is(err, sema.ErrEngine) && ctx.Err() == nil; err = held.Renew(ctx) {
			}
			expect.OK(t, err)
			for _, p := range []*sema.Permit{p, held} {
				if err := p.Release(); err != nil && !errors.Is(err, sema.ErrEngine) { // then it ends with its lease
					t.Error(err)
				}
			}
		})
	}
}

// The slot of a semaphore moves to another node while somebody waits.
func TestTheSlotMoves(t *testing.T) {
	t.Parallel()
	c := redistest.StartCluster(t, 3)
	ctx := expect.Within(t)
	o := &sema.Options{Lease: time.Minute}
	held, err := openSem(t, engineAt(t, c.Addrs()...), 1, o).Acquire(ctx)
	expect.OK(t, err)
	to := waiter(t, openSem(t, engineAt(t, c.Addrs()...), 1, o))
	slot := c.Nodes[0].Client().ClusterKeySlot(ctx, "sema:{x}:state").Val()
	from := 0
	for i, node := range c.Nodes {
		if node.Client().ClusterCountKeysInSlot(ctx, int(slot)).Val() > 0 {
			from = i
		}
	}
	after := c.Nodes[(from+1)%3]
	c.MoveSlot(slot, c.Nodes[from], after)
	expect.Until(t, "the inbox's move", func() bool {
		return len(after.Client().PubSubShardChannels(ctx, "sema:*").Val()) > 0
	})
	expect.OK(t, held.Err())
	handsOver(t, held, to)
}

// A master dies. Who held a permit has it still, or is told; who waited is served
// by the new master, and what replicas must have is asked of them.
func TestFailover(t *testing.T) {
	t.Parallel()
	sentinel := redistest.StartSentinel(t)
	option := rueidis.ClientOption{
		InitAddress: sentinel.Addrs(), DisableCache: true,
		Sentinel: rueidis.SentinelOption{MasterSet: redistest.MasterName, TopologyRefreshInterval: time.Second},
	}
	o := &sema.Options{Lease: 10 * time.Second, Patient: true} // sentinels may take longer than a lease
	ctx := expect.Within(t)
	sure := openSem(t, through(t, connect(t, option), option, &redisengine.Options{Replicas: 1}), 1, o)
	held, err := sure.Acquire(ctx)
	expect.OK(t, err)
	to := waiter(t, openSem(t, engineWith(t, option), 1, o))
	sentinel.Master.Kill()
	sentinel.AwaitMaster(sentinel.Replica)
	after := sentinel.Replica.Client()
	expect.Until(t, "listening to the new master", func() bool {
		return len(after.PubSubChannels(ctx, "sema:*").Val()) > 0
	})
	// A renewal needs a replica, of which there is none any more.
	if err := held.Release(); err != nil && !errors.Is(err, sema.ErrEngine) {
		expect.Is(t, err, sema.ErrLost)
	}
	p := <-to
	if p == nil {
		t.FailNow()
	}
	expect.OK(t, p.Release())
}

// A server comes back without data and connections: steps and reads use it
// again.
func TestTheServerRestarts(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	s := openSem(t, engineAt(t, server.Addr()), 1, nil)
	ctx := expect.Within(t)
	for range 3 {
		p, err := s.Acquire(ctx)
		expect.OK(t, err)
		_, err = s.State(ctx)
		expect.OK(t, err)
		server.Restart()
		_, err = s.State(ctx)
		expect.OK(t, err)
		_ = p.Release() // the server has forgotten it
	}
}

// A state that is read in parts, with several commands at once, is whole.
func TestALargeState(t *testing.T) {
	t.Parallel()
	for what, addrs := range map[string][]string{
		"server": {redistest.Start(t).Addr()}, "cluster": redistest.StartCluster(t, 3).Addrs(),
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			const many = 700 // more than are read in one step
			s := openSem(t, engineAt(t, addrs...), many, nil)
			ctx := expect.Within(t)
			held := make([]*sema.Permit, many)
			var all sync.WaitGroup
			for i := range held {
				all.Go(func() {
					var err error
					if held[i], err = s.Acquire(ctx); err != nil {
						t.Error(err)
					}
				})
			}
			all.Wait()
			st, err := openSem(t, engineAt(t, addrs...), many, nil).State(ctx)
			expect.OK(t, err)
			if len(st.Holders) != many || st.Used != many || st.Holders[0].Client.PID == 0 {
				t.Errorf("%d hold %d, the first is %+v", len(st.Holders), st.Used, st.Holders[0])
			}
			runtime.KeepAlive(held) // or they come back
		})
	}
}

// Errors mean what they mean with go-redis.
func TestErrors(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	rdb := server.Client()
	ctx := expect.Within(t)
	expect.OK(t, rdb.Set(ctx, "sema:{taken}:state", "somebody's", 0).Err())
	expect.OK(t, rdb.Do(ctx, "ACL", "SETUSER", "guest", "on", ">secret", "~*", "&*", "+@all", "-evalsha", "-eval").Err())
	guest := rueidis.ClientOption{InitAddress: []string{server.Addr()}, Username: "guest", Password: "secret"}
	away := redistest.Start(t)
	gone := engineAt(t, away.Addr())
	away.Kill()
	for _, c := range []struct {
		engine      sema.Engine
		name        string
		word, hint  string
		notExecuted bool
	}{
		{engineAt(t, server.Addr()), "taken", "WRONGTYPE", "another program uses a key of this name", true},
		{engineWith(t, guest), "x", "NOPERM", "the user lacks rights", false},
		{gone, "x", "connection refused", "check that the server runs", true},
	} {
		s, err := sema.New(c.engine, c.name, 1, &sema.Options{Lease: time.Second}) // so long does Close try
		expect.OK(t, err)
		_, err = s.TryAcquire(ctx)
		var e *engine.Error
		if !errors.As(err, &e) || !strings.Contains(e.Err.Error(), c.word) || !strings.Contains(e.Hint, c.hint) || e.NotExecuted != c.notExecuted {
			t.Errorf("%+v; want %s, %q, not executed %v", e, c.word, c.hint, c.notExecuted)
		}
		expect.OK(t, s.Close())
	}
}

// A function that gives name and password for each connection is also called
// for those of notifications.
func TestCredentials(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	expect.OK(t, server.Client().Do(expect.Within(t), "ACL", "SETUSER", "app", "on", ">secret", "~*", "&*", "+@all").Err())
	expect.OK(t, server.Client().Do(expect.Within(t), "ACL", "SETUSER", "default", "off").Err())
	e := engineWith(t, rueidis.ClientOption{
		InitAddress: []string{server.Addr()},
		AuthCredentialsFn: func(c rueidis.AuthCredentialsContext) (rueidis.AuthCredentials, error) {
			if c.Address.String() != server.Addr() {
				return rueidis.AuthCredentials{}, errors.New("asked for " + c.Address.String())
			}
			return rueidis.AuthCredentials{Username: "app", Password: "secret"}, nil
		},
	})
	held, err := openSem(t, e, 1, nil).Acquire(expect.Within(t))
	expect.OK(t, err)
	handsOver(t, held, waiter(t, openSem(t, e, 1, nil)))
}

// The rights that docs/redis.md lists suffice, with the one more that README.md names.
func TestRights(t *testing.T) {
	t.Parallel()
	documented := func(path, pattern string) string {
		page, err := os.ReadFile(path)
		expect.OK(t, err)
		found := regexp.MustCompile(pattern).FindSubmatch(page)
		if found == nil {
			t.Fatalf("%s does not list the rights", path)
		}
		return string(found[1])
	}
	listed := documented(filepath.Join("..", "..", "docs", "redis.md"), "(?s)\nACL SETUSER (sema on .*?)\n```")
	more := documented("README.md", "rueidis needs `(.client.tracking)`")
	server := redistest.Start(t)
	words := []any{"ACL", "SETUSER"}
	for _, w := range strings.Fields(strings.ReplaceAll(listed, "\\", "") + " " + more) {
		words = append(words, w)
	}
	ctx := expect.Within(t)
	expect.OK(t, server.Client().Do(ctx, words...).Err())
	e := engineWith(t, rueidis.ClientOption{InitAddress: []string{server.Addr()}, Username: "sema", Password: "secret"})
	held, err := openSem(t, e, 1, nil).Acquire(ctx)
	expect.OK(t, err)
	handsOver(t, held, waiter(t, openSem(t, e, 1, nil)))
	_, err = e.List(ctx)
	expect.OK(t, err)
}

func TestWhatCannotBeUsed(t *testing.T) {
	o := rueidis.ClientOption{InitAddress: []string{redistest.Start(t).Addr()}}
	client := connect(t, o)
	o.ReplicaOnly = true
	for _, f := range []func() (redis.UniversalClient, error){
		func() (redis.UniversalClient, error) { return semarueidis.New(nil, rueidis.ClientOption{}) },
		func() (redis.UniversalClient, error) { return semarueidis.New(client, rueidis.ClientOption{}) },
		func() (redis.UniversalClient, error) { return semarueidis.New(client, o) },
	} {
		_, err := f()
		var wrong *sema.ArgumentError
		if !errors.As(err, &wrong) {
			t.Errorf("error %v", err)
		}
	}
}
