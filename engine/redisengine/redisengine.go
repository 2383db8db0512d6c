// Package redisengine keeps semaphores in Redis (6.2 or later) or Valkey (7.2
// or later): alone, behind Sentinel, or as a cluster; through go-redis, so TLS,
// users and passwords are its options.
//
// Every operation is one step of a Lua script at the server's clock; script
// and data model are described in keys.go and lua/step.lua. A release hands
// the freed weight to the next waiter in the same step and publishes that to
// its process. The message only tells: a client that asks again under the same
// permit id finds out as well, so lost messages cost time, never a permit.
//
// Operations of one semaphore that find a call in flight leave together in the
// next, and the calls of many semaphores as one pipeline.
//
// # What it cannot promise
//
// Asynchronous replication may forget the last grants in a failover; their
// holders learn of it at their next renewal, and until then more can be held
// than the limit. The same goes for a server that restarts without its data.
// A server clock that jumps forward ends leases early. An eviction policy can
// remove a semaphore, also a volatile-… one, because its keys have a time to
// live: use noeviction, where memory pressure refuses acquisitions but neither
// renewals nor releases. A request that the network holds back until after its
// retry and the release takes a permit that nobody holds, for one lease; it
// counts, so the limit holds. docs/redis.md has the settings and the figures.
package redisengine

import (
	"context"
	"crypto/rand"
	"encoding/base32"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/redis/go-redis/v9"

	"sema"
)

// Engine keeps semaphores in the Redis behind a client. Create it with New and
// share it: its sessions share one subscription connection (one for each node
// of a cluster).
type Engine struct {
	rdb     redis.UniversalClient
	carrier carrier
	prefix  string // of the clients' ids: p for PUBLISH, s for SPUBLISH

	mu       sync.Mutex
	clients  uint64
	sessions map[*session]struct{}
	inbox    *inbox
	closed   bool
}

// New makes an engine on a client, which stays the caller's to close, after
// the engine. A *redis.ClusterClient needs servers with sharded
// publish/subscribe (Redis 7 or later).
//
// The client's own retries are not used, but its timeouts are: with
// ContextTimeoutEnabled an attempt ends on the wire in time for another one, and
// a caller who is alone sends by itself, without a goroutine's wake-up. That
// caller heeds its context no later than half a second after its end.
func New(rdb redis.UniversalClient) *Engine {
	random := make([]byte, 5)
	_, _ = rand.Read(random) // never fails
	flavour := "p"
	if _, cluster := rdb.(*redis.ClusterClient); cluster {
		flavour = "s"
	}
	return &Engine{
		rdb:      rdb,
		carrier:  carry(rdb),
		prefix:   flavour + strings.ToLower(base32.StdEncoding.EncodeToString(random)) + ".",
		sessions: map[*session]struct{}{},
		inbox:    newInbox(rdb),
	}
}

// Open implements sema.Engine.
func (e *Engine) Open(name string, client sema.Client, wake func(sema.Wake)) (sema.Session, error) {
	if err := sema.ValidateName(name); err != nil {
		return nil, err
	}
	if _, ring := e.rdb.(*redis.Ring); ring {
		return nil, &sema.ArgumentError{What: "redis client", Value: "*redis.Ring", Want: "a client for one server, Sentinel or a cluster"}
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return nil, sema.ErrClosed
	}
	e.clients++
	s := newSession(e, name, e.prefix+strconv.FormatUint(e.clients, 36), client, wake)
	e.sessions[s] = struct{}{}
	return s, nil
}

// List implements sema.Engine. It scans the whole key space.
func (e *Engine) List(ctx context.Context) ([]string, error) {
	var mu sync.Mutex
	names := []string{}
	scan := func(ctx context.Context, c *redis.Client) error {
		it := c.Scan(ctx, 0, statePattern, 1000).Iterator()
		for it.Next(ctx) {
			if name, ok := nameOf(it.Val()); ok {
				mu.Lock()
				names = append(names, name)
				mu.Unlock()
			}
		}
		return it.Err()
	}
	var err error
	switch c := e.rdb.(type) {
	case *redis.ClusterClient:
		err = c.ForEachMaster(ctx, scan)
	case *redis.Client:
		err = scan(ctx, c)
	default:
		err = fmt.Errorf("cannot list with a %T", c)
	}
	if err != nil {
		return nil, wrap("list", "", err, true)
	}
	slices.Sort(names)
	return slices.Compact(names), nil
}

// Close implements sema.Engine. The Redis client stays open.
func (e *Engine) Close() error {
	e.mu.Lock()
	e.closed = true
	sessions := e.sessions
	e.sessions = map[*session]struct{}{}
	e.mu.Unlock()
	for s := range sessions {
		s.shut()
		s.wake(sema.Wake{Closed: true})
	}
	e.inbox.close()
	return nil
}

func (e *Engine) forget(s *session) {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.sessions, s)
}
