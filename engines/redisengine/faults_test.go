package redisengine_test

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"sema"
	"sema/engine"
	"sema/internal/fixture/expect"
	"sema/internal/fixture/redistest"
	"sema/internal/protocol"
)

// limitOne starts a server for a parallel test, and opens a semaphore there.
func limitOne(t *testing.T, args ...string) (context.Context, *redistest.Server, *redis.Client, *sema.Semaphore) {
	t.Parallel()
	server := redistest.Start(t, args...)
	return expect.Within(t), server, server.Client(), openSem(t, engineAt(t, server.Addr()), "x", 1, nil)
}

// refused checks that an acquisition fails with an error of the given class,
// and leaves nothing behind in the background.
func refused(t *testing.T, s *sema.Semaphore, word, hint string) {
	t.Helper()
	_, err := s.TryAcquire(expect.Within(t))
	engineError(t, err, word, hint, true)
}

// "SCRIPT FLUSH, restart, failover: NOSCRIPT": between operations and under load.
func TestScriptsAreForgotten(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	rdb := server.Client()
	ctx := expect.Within(t)
	s := openSem(t, engineAt(t, server.Addr()), "x", 2, nil)
	flush := func() { expect.OK(t, rdb.ScriptFlush(ctx).Err()) }
	p := acquire(t, s)
	flush()
	expect.OK(t, p.Renew(ctx))
	flush()
	stateOf(t, s)
	flush()
	expect.OK(t, p.Release())

	var stop atomic.Bool
	var workers sync.WaitGroup
	for range 8 {
		workers.Go(func() {
			for !stop.Load() {
				if err := s.Do(ctx, func(context.Context) error { return nil }); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	for range 100 {
		flush()
	}
	stop.Store(true)
	workers.Wait()
	wholeLimit(t, s, 2)
}

// A server that comes back with its data: the permit lives on.
func TestRestartWithData(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, "--appendonly", "yes")
	s := openSem(t, engineAt(t, server.Addr()), "x", 1, nil)
	p := acquire(t, s)
	w := queue(t, s)
	server.Restart()
	expect.OK(t, p.Renew(expect.Within(t)))
	expect.OK(t, p.Release())
	next := w.permit(t)
	if next.Token() <= p.Token() {
		t.Errorf("token %d after %d", next.Token(), p.Token())
	}
	expect.OK(t, next.Release())
}

func TestLoading(t *testing.T) {
	ctx, server, rdb, s := limitOne(t)
	expect.OK(t, acquire(t, s).Release())
	// The server loads its data for minutes while clients call it.
	expect.OK(t, rdb.Do(ctx, "DEBUG", "POPULATE", "50000").Err())
	expect.OK(t, rdb.ConfigSet(ctx, "loading-process-events-interval-bytes", "1024").Err())
	expect.OK(t, rdb.ConfigSet(ctx, "key-load-delay", "2000").Err())
	go func() { _ = rdb.Do(context.Background(), "DEBUG", "RELOAD").Err() }()
	expect.Until(t, "loading", func() bool {
		err := rdb.Get(ctx, "x").Err()
		return err != nil && redis.HasErrorPrefix(err, "LOADING")
	})
	refused(t, s, "LOADING", "still loading")
	server.Kill()
}

func TestReadOnlyReplica(t *testing.T) {
	ctx, _, rdb, s := limitOne(t)
	p := acquire(t, s)
	expect.OK(t, rdb.Do(ctx, "REPLICAOF", "127.0.0.1", "1").Err())
	refused(t, s, "READONLY", "replica")
	expect.OK(t, rdb.ConfigSet(ctx, "replica-serve-stale-data", "no").Err())
	refused(t, s, "MASTERDOWN", "")
	expect.OK(t, rdb.Do(ctx, "REPLICAOF", "NO", "ONE").Err())
	expect.OK(t, p.Release())
}

// A foreign script blocks the server. Callers get an error, and all goes on
// when the script is killed.
func TestBusyScript(t *testing.T) {
	ctx, server, rdb, s := limitOne(t, "--busy-reply-threshold", "50")
	p := acquire(t, s)
	blocked := make(chan struct{})
	other := redis.NewClient(&redis.Options{Addr: server.Addr(), ReadTimeout: -1, MaxRetries: -1})
	go func() {
		defer close(blocked)
		_ = other.Eval(context.Background(), "while true do end", nil).Err()
	}()
	expect.Until(t, "blocking", func() bool {
		err := rdb.Ping(ctx).Err()
		return err != nil && redis.HasErrorPrefix(err, "BUSY")
	})
	refused(t, s, "BUSY", "SCRIPT KILL")
	expect.OK(t, rdb.ScriptKill(ctx).Err())
	<-blocked
	_ = other.Close()
	expect.OK(t, p.Renew(ctx))
	expect.OK(t, p.Release())
}

// Memory is full: acquisitions are refused, renewals and releases are carried
// out, also in one call.
func TestOutOfMemory(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	rdb := server.Client()
	ctx := expect.Within(t)
	e := engineAt(t, server.Addr())
	s := openSem(t, e, "x", 3, nil)
	p, q := acquire(t, s), acquire(t, s)
	expect.OK(t, rdb.ConfigSet(ctx, "maxmemory", "1").Err())
	before := dump(t, rdb)
	refused(t, s, "OOM", "maxmemory")
	if !sameDump(before, dump(t, rdb)) {
		t.Error("a refused acquisition changed something")
	}
	expect.OK(t, p.Renew(ctx))
	expect.OK(t, p.Release())

	// One step with a ticket to keep and a permit to renew.
	d := session(t, e, "x")
	held := d.request(protocol.Renew, 0, time.Minute)
	var err error
	held.ID, err = engine.ParseID(q.ID())
	expect.OK(t, err)
	answers := d.do(d.request(protocol.Ask, 1, time.Minute), held)
	if answers[1].Status != protocol.Granted {
		t.Errorf("renewed beside an acquisition: %+v", answers[1])
	}
	expect.OK(t, q.Release())
	expect.OK(t, rdb.ConfigSet(ctx, "maxmemory", "0").Err())
	d.do(d.request(protocol.Release, 1, 0))
	wholeLimit(t, s, 3)
}

func TestCannotSave(t *testing.T) {
	ctx, server, rdb, s := limitOne(t)
	p := acquire(t, s)
	// A snapshot that cannot be written: its name is a directory's.
	expect.OK(t, rdb.ConfigSet(ctx, "save", "3600 1").Err())
	expect.OK(t, os.Mkdir(filepath.Join(server.Dir(), "dump.rdb"), 0o700))
	expect.OK(t, rdb.BgSave(ctx).Err())
	expect.Until(t, "failing to save", func() bool {
		info, err := rdb.Info(ctx, "persistence").Result()
		return err == nil && strings.Contains(info, "rdb_last_bgsave_status:err")
	})
	refused(t, s, "MISCONF", "save to disk")
	expect.OK(t, rdb.ConfigSet(ctx, "stop-writes-on-bgsave-error", "no").Err())
	expect.OK(t, p.Release())
}

func TestTooFewReplicas(t *testing.T) {
	ctx, _, rdb, s := limitOne(t)
	p := acquire(t, s)
	expect.OK(t, rdb.ConfigSet(ctx, "min-replicas-to-write", "1").Err())
	refused(t, s, "NOREPLICAS", "")
	expect.OK(t, rdb.ConfigSet(ctx, "min-replicas-to-write", "0").Err())
	expect.OK(t, p.Release())
}

func TestNoConnectionLeft(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	rdb := server.Client()
	ctx := expect.Within(t)
	expect.OK(t, rdb.ConfigSet(ctx, "maxclients", "1").Err())
	s := openSem(t, engineAt(t, server.Addr()), "x", 1, nil)
	// The server sends an error before it closes the connection. The client may
	// not receive it; then the outcome of the request is unknown.
	_, err := s.TryAcquire(ctx)
	var e *engine.Error
	if !errors.As(err, &e) || !strings.Contains(e.Hint, "maxclients") {
		t.Errorf("%v", err)
	}
	expect.OK(t, rdb.ConfigSet(ctx, "maxclients", "100").Err())
	expect.OK(t, acquire(t, s).Release())
}

func TestPasswords(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	rdb := connect(t, redis.Options{Addr: server.Addr(), Username: "admin", Password: "a"})
	first := server.Client()
	ctx := expect.Within(t)
	expect.OK(t, first.Do(ctx, "ACL", "SETUSER", "admin", "on", ">a", "~*", "&*", "+@all").Err())
	expect.OK(t, rdb.ConfigSet(ctx, "requirepass", "secret").Err())
	refused(t, openSem(t, engineAt(t, server.Addr()), "x", 1, nil), "unauthenticated", "wants a password")
	wrong := closing(t, connect(t, redis.Options{Addr: server.Addr(), Password: "wrong"}))
	refused(t, openSem(t, wrong, "x", 1, nil), "WRONGPASS", "check user and password")
	right := closing(t, connect(t, redis.Options{Addr: server.Addr(), Password: "secret"}))
	expect.OK(t, acquire(t, openSem(t, right, "x", 1, nil)).Release())
}

func TestNobodyListensThere(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	addr := server.Addr()
	server.Kill()
	refused(t, openSem(t, engineAt(t, addr), "x", 1, nil), "refused", "the server runs")
}

// neverBetter checks that an acquisition fails, with a hint, although it is willing to wait for
// an engine that is away. So its error is not temporary.
func neverBetter(t *testing.T, rdb redis.UniversalClient, name, hint string) {
	t.Helper()
	_, err := openSem(t, closing(t, rdb), name, 1, &sema.Options{Patient: true}).Acquire(expect.Within(t))
	var failure *engine.Error
	if !errors.As(err, &failure) || errors.Is(err, context.DeadlineExceeded) || failure.Temporary || !strings.Contains(failure.Hint, hint) {
		t.Errorf("%v: %+v", err, failure)
	}
}

// What waiting cannot cure fails at once, and says what to try.
func TestWhatNeverGetsBetter(t *testing.T) {
	t.Parallel()
	server, nodes := redistest.Start(t), redistest.StartCluster(t, 3).Nodes
	protected, _ := startTLS(t)
	watcher := redistest.StartWatcher(t, server.Addr(), time.Minute)
	rdb, ctx := server.Client(), expect.Within(t)
	expect.OK(t, rdb.Do(ctx, "ACL", "SETUSER", "nobody", "on", ">secret", "~*", "&*", "-@all", "+hello").Err())
	expect.OK(t, rdb.Set(ctx, "sema:{taken}:state", 1, 0).Err())
	host, _, err := net.SplitHostPort(server.Addr())
	expect.OK(t, err)
	anyone := &tls.Config{InsecureSkipVerify: true} //nolint:gosec
	for what, c := range map[string]struct {
		o          redis.Options
		name, hint string
	}{
		"a wrong password":          {redis.Options{Addr: server.Addr(), Username: "nobody", Password: "wrong"}, "x", "password"},
		"no rights":                 {redis.Options{Addr: server.Addr(), Username: "nobody", Password: "secret"}, "x", "rights"},
		"no such database":          {redis.Options{Addr: server.Addr(), DB: 99}, "x", "databases"},
		"a database of a cluster":   {redis.Options{Addr: nodes[0].Addr(), DB: 1}, "x", "redis+cluster://"},
		"TLS to a plain server":     {redis.Options{Addr: server.Addr(), TLSConfig: anyone}, "x", "no TLS"},
		"no TLS to a server of TLS": {redis.Options{Addr: protected}, "x", "rediss://"},
		"a certificate of nobody's": {redis.Options{Addr: protected, TLSConfig: &tls.Config{}}, "x", "certificate"},
		"an address with a scheme":  {redis.Options{Addr: server.URL()}, "x", "host:port"},
		"an address without a port": {redis.Options{Addr: host}, "x", "host:port"},
		"an address with a path":    {redis.Options{Addr: server.Addr() + "/0"}, "x", "host:port"},
		"a port that is none":       {redis.Options{Addr: host + ":123456"}, "x", "host:port"},
		"a key of another type":     {redis.Options{Addr: server.Addr()}, "taken", "another name"},
		"a Sentinel":                {redis.Options{Addr: watcher.Addr()}, "x", "NewFailoverClient"},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			neverBetter(t, connect(t, c.o), c.name, c.hint)
		})
	}
	for what, c := range map[string]struct {
		o    redis.ClusterOptions
		hint string
	}{
		"a cluster client at one server":          {redis.ClusterOptions{Addrs: []string{server.Addr()}}, "NewClient"},
		"a cluster client without a port":         {redis.ClusterOptions{Addrs: []string{host}}, "host:port"},
		"a cluster client with TLS":               {redis.ClusterOptions{Addrs: []string{nodes[0].Addr()}, TLSConfig: anyone}, "no TLS"},
		"a cluster client without a right":        {redis.ClusterOptions{Addrs: []string{nodes[0].Addr()}, Username: "ghost", Password: "wrong"}, "password"},
		"a cluster client at one server, for TLS": {redis.ClusterOptions{Addrs: []string{protected}}, "rediss://"},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			c.o.ContextTimeoutEnabled, c.o.DialTimeout = true, time.Second // Close waits for a handshake
			rdb := redis.NewClusterClient(&c.o)
			t.Cleanup(func() { _ = rdb.Close() })
			neverBetter(t, rdb, "x", c.hint)
		})
	}
	// Each node has the slots of some of these names.
	t.Run("a client of one server at a node of a cluster", func(t *testing.T) {
		t.Parallel()
		for i := range 6 {
			neverBetter(t, connect(t, redis.Options{Addr: nodes[0].Addr()}), strconv.Itoa(i), "NewClusterClient")
		}
	})
	for what, o := range map[string]redis.FailoverOptions{
		"a Sentinel without the master": {SentinelAddrs: []string{watcher.Addr()}, MasterName: "ghost"},
		"a server that is no Sentinel":  {SentinelAddrs: []string{server.Addr()}, MasterName: "mymaster"},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			o.ContextTimeoutEnabled = true
			rdb := redis.NewFailoverClient(&o)
			t.Cleanup(func() { _ = rdb.Close() })
			neverBetter(t, rdb, "x", "Sentinel")
		})
	}
}

// A cluster of one node serves all names, so a client of one server can use it.
func TestAClusterOfOneNode(t *testing.T) {
	t.Parallel()
	node := redistest.StartClusterNode(t, nil)
	redistest.FormCluster(t, []*redistest.Server{node}, nil)
	s := openSem(t, engineAt(t, node.Addr()), "x", 1, nil)
	expect.OK(t, acquire(t, s).Release())
}

// The hint of an acquisition that gets no connection names the pool if the program's own commands
// have all of it.
func TestThePoolIsInUse(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	admin, ctx := server.Client(), expect.Within(t)
	rdb := connect(t, redis.Options{Addr: server.Addr(), PoolSize: 1})
	got := make(chan error, 1)
	go func() { got <- rdb.BLPop(context.Background(), 0, "list").Err() }()
	expect.Until(t, "a blocked client", func() bool {
		info, err := admin.Info(ctx, "clients").Result()
		return err == nil && strings.Contains(info, "blocked_clients:1")
	})
	_, err := openSem(t, closing(t, rdb), "x", 1, nil).Acquire(ctx)
	engineError(t, err, "", "PoolSize", true)
	expect.OK(t, admin.RPush(ctx, "list", "x").Err())
	expect.OK(t, <-got)
}
