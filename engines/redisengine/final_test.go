package redisengine_test

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"sema"
	"sema/engine"
	"sema/internal/fixture/expect"
	"sema/internal/fixture/redistest"
)

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
