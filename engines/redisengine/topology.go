package redisengine

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"time"

	"github.com/redis/go-redis/v9"

	"sema/engine"
	"sema/internal/redissub"
)

// topology hides the differences between one server, a master behind Sentinel,
// and a cluster.
type topology struct {
	rdb           redis.UniversalClient
	cluster       *redis.ClusterClient // nil: one server, or Sentinel
	wireDeadlines bool                 // the client ends a call at its context's deadline (ContextTimeoutEnabled)
	readTimeout   time.Duration        // the client's; 0: none, or not known
	poolSize      int                  // the client's; 0: not known
	addr          string               // of a server; "": not known
	tls           bool                 // the client uses TLS

	// publishMark is the first byte of each client's name. It tells the scripts how to
	// publish to the client: p means PUBLISH, s means SPUBLISH.
	publishMark string
}

// topologyOf returns the topology of a client, or an *engine.ArgumentError for
// a client that cannot keep semaphores.
func topologyOf(rdb redis.UniversalClient) (topology, error) {
	const want = "a client for one server, Sentinel or a cluster"
	if v := reflect.ValueOf(rdb); !v.IsValid() || v.Kind() == reflect.Pointer && v.IsNil() {
		return topology{}, &engine.ArgumentError{What: "redis client", Value: nil, Want: want}
	}
	t := topology{rdb: rdb, publishMark: "p"}
	switch c := rdb.(type) {
	case *redis.Client:
		o := c.Options()
		t.wireDeadlines, t.readTimeout, t.poolSize, t.tls = o.ContextTimeoutEnabled, max(0, o.ReadTimeout), o.PoolSize, o.TLSConfig != nil
		if o.Network == "tcp" {
			t.addr = o.Addr
		}
	case *redis.ClusterClient:
		o := c.Options()
		t.cluster, t.publishMark = c, "s"
		t.wireDeadlines, t.readTimeout, t.tls = o.ContextTimeoutEnabled, max(0, o.ReadTimeout), o.TLSConfig != nil
		if len(o.Addrs) > 0 {
			t.addr = o.Addrs[0]
		}
	case *redis.Ring: // its servers are independent: a key would be in two places after a change of servers
		return topology{}, &engine.ArgumentError{What: "redis client", Value: "*redis.Ring", Want: want}
	}
	return t, nil
}

// node finds the server that has a semaphore's channels, and its address; "" if
// there is only one. It may wait for the cluster's map.
func (t *topology) node(ctx context.Context, key string) (redissub.Node, string, error) {
	if t.cluster == nil {
		return redissub.Node{Open: func(ctx context.Context) *redis.PubSub { return t.rdb.Subscribe(ctx) }}, "", nil
	}
	master, err := t.cluster.MasterForKey(ctx, key)
	if err != nil {
		return redissub.Node{}, "", err
	}
	open := func(ctx context.Context) *redis.PubSub { return master.SSubscribe(ctx) }
	return redissub.Node{Sharded: true, Open: open}, master.Options().Addr, nil
}

// master is a client for the server that has a key.
func (t *topology) master(ctx context.Context, key string) (redis.UniversalClient, error) {
	if t.cluster == nil {
		return t.rdb, nil
	}
	return t.cluster.MasterForKey(ctx, key)
}

// reload makes go-redis read the cluster's map again, in the background.
func (t *topology) reload(ctx context.Context) {
	if t.cluster != nil {
		t.cluster.ReloadState(ctx)
	}
}

// each calls f for every master, in a cluster concurrently.
func (t *topology) each(ctx context.Context, f func(context.Context, *redis.Client) error) error {
	if t.cluster != nil {
		return t.cluster.ForEachMaster(ctx, f)
	}
	if c, ok := t.rdb.(*redis.Client); ok {
		return f(ctx, c)
	}
	return fmt.Errorf("cannot list with a %T", t.rdb)
}

// errNotSent means that the context ended before the call had a connection.
var errNotSent = errors.New("no connection in time")

// notSent marks an error that came before the client sent anything. For one
// server, go-redis returns the context's own error only then: after sending, it
// returns a network time-out. In a cluster the context's error may also come
// between two attempts, so it proves nothing.
func (t *topology) notSent(err error) error {
	if t.cluster == nil && (err == context.DeadlineExceeded || err == context.Canceled) {
		return fmt.Errorf("%w: %w", errNotSent, err)
	}
	return err
}
