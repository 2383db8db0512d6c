// Package redisengine keeps semaphores in Redis (6.2 or later) or Valkey (7.2
// or later): alone, behind Sentinel, or as a cluster; through go-redis, so TLS,
// users and passwords are its options.
//
// Every call is one step of a Lua script at the server's clock; the data model
// is described in keys.go, the script in lua/words.lua. A release hands the
// freed weight to the next waiter in the same step and publishes that to its
// process. The message only tells: a client that asks again under the same
// permit id finds out as well, so lost messages cost time, never a permit.
//
// # What it cannot promise
//
// Asynchronous replication may forget the last grants in a failover; their
// holders learn of it at their next renewal, and until then more can be held
// than the limit. The same goes for a server that restarts without its data.
// A server clock that jumps forward ends leases early. An eviction policy can
// remove a semaphore, also a volatile-… one, because its keys have a time to
// live: use noeviction, where memory pressure refuses acquisitions but neither
// renewals nor releases. docs/redis.md has the settings, docs/data/redis.md the figures.
package redisengine

import (
	"context"
	"crypto/rand"
	"encoding/base32"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/redis/go-redis/v9"

	"sema/engine"
)

// Options are what an engine can be told.
type Options struct {
	// Prefix begins all keys and channels. Engines with different prefixes share
	// a server without seeing each other's semaphores. Default: "sema:".
	Prefix string

	// Replicas is how many replicas must have a grant, a renewal, or a limit that
	// was set, before it counts (WAIT), 0 … MaxReplicas. Fewer fail the call with
	// ErrTooFewReplicas; it is repeated, and a grant that came to nothing is given
	// back. With as many as there are, a failover forgets no permit that somebody
	// trusts. The price: a round trip to the replicas for each call, one more for
	// each hand-off between processes, and permits end with their leases while
	// too few replicas answer. Default: 0.
	Replicas int
}

// MaxReplicas is the most of Options.Replicas.
const MaxReplicas = 100

// Engine keeps semaphores in the Redis behind a client. Create it with New and
// share it: its sessions share one subscription connection (one for each node
// of a cluster).
type Engine struct {
	prefix   string // of keys
	clients  string // of the clients' names
	topology topology
	caller   caller
	messages *dispatcher

	mu       sync.Mutex
	number   uint64
	sessions map[*session]struct{}
	closed   bool
}

// New makes an engine on a client, which stays the caller's to close, after
// the engine. A *redis.ClusterClient needs servers with sharded
// publish/subscribe (Redis 7 or later). What cannot be used is an
// *engine.ArgumentError.
//
// The client's own retries are not used for steps, but its timeouts are: with
// ContextTimeoutEnabled a call ends on the wire when its context does. Without it each
// call is made in a goroutine of its own, and takes up to twice the time.
func New(rdb redis.UniversalClient, o *Options) (*Engine, error) {
	t, err := topologyOf(rdb)
	if err != nil {
		return nil, err
	}
	prefix := defaultPrefix
	if o != nil && o.Prefix != "" {
		prefix = o.Prefix
	}
	if err := engine.ValidateText("prefix", prefix, engine.MaxName); err != nil {
		return nil, err
	}
	if strings.ContainsAny(prefix, "{}") {
		return nil, &engine.ArgumentError{What: "prefix", Value: prefix, Want: "no braces: they mark the slot in a cluster"}
	}
	replicas := 0
	if o != nil {
		replicas = o.Replicas
	}
	if replicas < 0 || replicas > MaxReplicas {
		return nil, &engine.ArgumentError{What: "number of replicas", Value: replicas, Want: fmt.Sprintf("0 … %d", MaxReplicas)}
	}
	random := make([]byte, 5)
	_, _ = rand.Read(random) // never fails
	e := &Engine{
		prefix:   prefix,
		clients:  t.mark() + layout + strings.ToLower(base32.StdEncoding.EncodeToString(random)) + ".",
		topology: t,
		sessions: map[*session]struct{}{},
	}
	e.caller.topology, e.caller.replicas, e.caller.part = &e.topology, replicas, wholeState
	e.messages = newDispatcher(&e.topology)
	return e, nil
}

// Open implements engine.Engine.
func (e *Engine) Open(name string, who engine.Client, notify func(engine.Notification)) (engine.Session, error) {
	if err := engine.ValidateName(name); err != nil {
		return nil, err
	}
	description, _ := json.Marshal(who) // strings and a number
	if e.caller.replicas > 0 {
		notify = unsure(notify)
	}
	s := &session{
		name: name, keys: keysOf(e.prefix, name), who: string(description), notify: notify,
		caller: &e.caller, messages: e.messages,
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return nil, engine.ErrClosed
	}
	e.number++
	s.id = e.clients + strconv.FormatUint(e.number, 36)
	s.words = words{keys: s.keys, client: s.id}
	s.forget = func() {
		e.mu.Lock()
		defer e.mu.Unlock()
		delete(e.sessions, s)
	}
	e.sessions[s] = struct{}{}
	return s, nil
}

// List implements engine.Engine. It scans the whole key space.
func (e *Engine) List(ctx context.Context) ([]string, error) {
	names, err := apart(ctx, func() ([]string, error) { return e.list(ctx) })
	if err != nil {
		failed := e.topology.wrap("list", "", err)
		failed.NotExecuted = true
		return nil, failed
	}
	return names, nil
}

func (e *Engine) list(ctx context.Context) ([]string, error) {
	var mu sync.Mutex
	names := []string{}
	err := e.topology.each(ctx, func(ctx context.Context, c *redis.Client) error {
		it := c.Scan(ctx, 0, statePattern(e.prefix), 1000).Iterator()
		for it.Next(ctx) {
			if name, ok := nameOf(e.prefix, it.Val()); ok {
				mu.Lock()
				names = append(names, name)
				mu.Unlock()
			}
		}
		return it.Err()
	})
	slices.Sort(names)
	return slices.Compact(names), err
}

// Close implements engine.Engine. The Redis client stays open.
func (e *Engine) Close() error {
	e.mu.Lock()
	e.closed = true
	sessions := e.sessions
	e.sessions = map[*session]struct{}{}
	e.mu.Unlock()
	for s := range sessions {
		s.closed.Store(true)
		s.notify(engine.Notification{Closed: true})
	}
	e.messages.close()
	return nil
}
