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

// topology is what differs between one server, a master behind Sentinel, and a
// cluster.
type topology struct {
	rdb     redis.UniversalClient
	cluster *redis.ClusterClient // nil: one server, or Sentinel
	heeds   bool                 // the client ends a call on the wire when its context ends

	patience time.Duration // how long it waits for a reply; 0: as long as it takes, or not known
}

// node is where a semaphore's channels live.
type node struct {
	redissub.Node
	addr string // "" if there is only one
}

// topologyOf refuses what cannot keep semaphores.
func topologyOf(rdb redis.UniversalClient) (topology, error) {
	const want = "a client for one server, Sentinel or a cluster"
	if v := reflect.ValueOf(rdb); !v.IsValid() || v.Kind() == reflect.Pointer && v.IsNil() {
		return topology{}, &engine.ArgumentError{What: "redis client", Value: nil, Want: want}
	}
	t := topology{rdb: rdb}
	switch c := rdb.(type) {
	case *redis.Client:
		t.heeds, t.patience = c.Options().ContextTimeoutEnabled, max(0, c.Options().ReadTimeout)
	case *redis.ClusterClient:
		t.cluster, t.heeds, t.patience = c, c.Options().ContextTimeoutEnabled, max(0, c.Options().ReadTimeout)
	case *redis.Ring: // its servers know nothing of each other
		return topology{}, &engine.ArgumentError{What: "redis client", Value: "*redis.Ring", Want: want}
	}
	return t, nil
}

// mark begins the names of clients. The scripts see by it how to publish to
// them: p PUBLISH, s SPUBLISH. Behind it is the layout, so that a later release sees who
// cannot read another one.
func (t *topology) mark() string {
	if t.cluster != nil {
		return "s"
	}
	return "p"
}

// node finds the node of a key. It may wait for the cluster's map.
func (t *topology) node(ctx context.Context, key string) (node, error) {
	if t.cluster == nil {
		return node{Node: redissub.Node{Open: func(ctx context.Context) *redis.PubSub { return t.rdb.Subscribe(ctx) }}}, nil
	}
	master, err := t.cluster.MasterForKey(ctx, key)
	if err != nil {
		return node{}, err
	}
	open := func(ctx context.Context) *redis.PubSub { return master.SSubscribe(ctx) }
	return node{redissub.Node{Sharded: true, Open: open}, master.Options().Addr}, nil
}

// master is a client for the server that has a key.
func (t *topology) master(ctx context.Context, key string) (redis.Cmdable, error) {
	if t.cluster == nil {
		return t.rdb, nil
	}
	return t.cluster.MasterForKey(ctx, key)
}

// moved has the cluster's map read again.
func (t *topology) moved(ctx context.Context) {
	if t.cluster != nil {
		t.cluster.ReloadState(ctx)
	}
}

// each calls f for every server that has keys; for several at once.
func (t *topology) each(ctx context.Context, f func(context.Context, *redis.Client) error) error {
	if t.cluster != nil {
		return t.cluster.ForEachMaster(ctx, f)
	}
	if c, ok := t.rdb.(*redis.Client); ok {
		return f(ctx, c)
	}
	return fmt.Errorf("cannot list with a %T", t.rdb)
}

// errNotSent is the end of a context before the call had a connection.
var errNotSent = errors.New("no connection in time")

// notSent tells an error of the client's before it has sent anything. On the
// wire, the end of a context is a time-out of the network's; in a cluster it
// may come between two attempts.
func (t *topology) notSent(err error) error {
	if t.cluster == nil && (err == context.DeadlineExceeded || err == context.Canceled) {
		return fmt.Errorf("%w: %w", errNotSent, err)
	}
	return err
}
