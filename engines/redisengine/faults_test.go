package redisengine_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
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

	stop := make(chan struct{})
	var workers sync.WaitGroup
	for range 8 {
		workers.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				p, err := s.Acquire(ctx)
				if err == nil {
					err = p.Release()
				}
				if err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	for range 100 {
		flush()
	}
	close(stop)
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

// A server that comes back without its data: holders learn of the loss when
// they renew, waiters are served, and the tokens still grow.
func TestRestartWithoutData(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	s := openSem(t, engineAt(t, server.Addr()), "x", 1, &sema.Options{Lease: 3 * time.Second})
	p := acquire(t, s)
	w := queue(t, s)
	server.Restart()
	<-p.Context(context.Background()).Done()
	next := w.permit(t)
	if next.Token() <= p.Token() {
		t.Errorf("token %d after %d: fencing fell back", next.Token(), p.Token())
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
