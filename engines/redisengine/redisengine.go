// Package redisengine keeps semaphores in Redis (6.2 or later) or Valkey (7.2
// or later): one server, a master behind Sentinel, or a cluster. The connection
// is go-redis's, so TLS, users and passwords are options of its client.
//
// Every call is one run of a Lua script, and the script uses the server's
// clock. keys.go has the names of the keys, lua/layout.lua the data model. A release
// gives the freed weight to the next waiter in the same step, and publishes a
// message to the waiter's process. The message may be lost: the client then
// learns of the grant when it asks again under the same permit id. So a lost
// message costs time, never a permit.
//
// # What it cannot promise
//
// Replication is asynchronous, so a failover may forget the last grants. Their holders
// learn of the loss at their next renewal; until then more can be held than the limit.
// The same holds for a server that restarts without its data. A server clock that jumps
// forward ends leases early. Any eviction policy can remove a semaphore, also a
// volatile-… policy, because the keys have a time to live. Use noeviction: a full server
// then refuses acquisitions, but carries out renewals and releases. docs/redis.md has
// the settings, docs/data/redis.md the figures.
package redisengine

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/base32"
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/redis/go-redis/v9"

	"sema/engine"
	"sema/internal/protocol"
)

// Options configure an engine. The zero value is valid.
type Options struct {
	// Prefix begins all keys and channels. Engines with different prefixes share
	// a server without seeing each other's semaphores. Default: "sema:".
	Prefix string

	// Replicas is how many replicas must confirm a grant, a renewal or a new limit
	// before it counts (WAIT). Default: 0; at most MaxReplicas. With fewer
	// confirmations the call fails with ErrTooFewReplicas: the client repeats it,
	// and gives back a grant that it does not use. Set Replicas to the number of
	// replicas; then a failover loses no trusted permit. The price: each call
	// takes a round trip to the replicas, each hand-off between processes one
	// more; and while too few replicas answer, permits end with their leases.
	Replicas int
}

// MaxReplicas is the largest Options.Replicas.
const MaxReplicas = 100

// Engine keeps semaphores in the Redis behind a client. Create it with New and
// share it: its sessions share one subscription connection (in a cluster, one
// for each node).
type Engine struct {
	prefix   string // of keys
	clients  string // of the clients' names
	caller   caller
	messages *dispatcher

	mu       sync.Mutex
	number   uint64
	sessions map[*session]struct{}
	closed   bool
}

// New makes an engine on a client. The caller closes the client, after the
// engine. A *redis.ClusterClient needs servers with sharded publish/subscribe
// (Redis 7 or later). An unusable client or option is an *engine.ArgumentError. New does no
// I/O: the first step asks the server whether it fits the client, and fails for good at a node
// of a cluster if the client is for one server.
//
// Steps use the client's timeouts, but not its retries. With ContextTimeoutEnabled,
// the client stops waiting for a reply at the context's deadline. Without
// ContextTimeoutEnabled, each call runs in a goroutine of its own, which can take up
// to twice the time.
func New(rdb redis.UniversalClient, o *Options) (*Engine, error) {
	t, err := topologyOf(rdb)
	if err != nil {
		return nil, err
	}
	var is Options
	if o != nil {
		is = *o
	}
	prefix := cmp.Or(is.Prefix, defaultPrefix)
	if err := engine.ValidateText("prefix", prefix, engine.MaxName); err != nil {
		return nil, err
	}
	if strings.ContainsAny(prefix, "{}") {
		return nil, &engine.ArgumentError{What: "prefix", Value: prefix, Want: "no braces: they mark the slot in a cluster"}
	}
	if err := engine.ValidateRange("", "number of replicas", is.Replicas, 0, MaxReplicas); err != nil {
		return nil, err
	}
	random := make([]byte, 5)
	_, _ = rand.Read(random) // never fails
	e := &Engine{
		prefix:   prefix,
		clients:  t.publishMark + strings.ToLower(base32.StdEncoding.EncodeToString(random)) + ".",
		caller:   caller{topology: t, replicas: is.Replicas, readSize: defaultReadSize},
		sessions: map[*session]struct{}{},
	}
	e.messages = newDispatcher(&e.caller.topology)
	return e, nil
}

// Open implements sema.Engine.
func (e *Engine) Open(name string, who engine.Client, notify func(protocol.Notification)) (protocol.Session, error) {
	if err := engine.ValidateName(name); err != nil {
		return nil, err
	}
	description, _ := json.Marshal(who) // strings and a number
	if e.caller.replicas > 0 {
		notify = unsure(notify)
	}
	s := &session{
		name: name, keys: keysOf(e.prefix, name), notify: notify,
		caller: &e.caller, messages: e.messages,
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return nil, engine.ErrClosed
	}
	e.number++
	s.id = e.clients + strconv.FormatUint(e.number, 36)
	s.words = words{keys: s.keys, client: s.id, who: string(description)}
	s.forget = func() {
		e.mu.Lock()
		defer e.mu.Unlock()
		delete(e.sessions, s)
	}
	e.sessions[s] = struct{}{}
	return s, nil
}

// List implements sema.Engine. It scans the whole key space.
func (e *Engine) List(ctx context.Context) ([]string, error) {
	names, err := cancellable(ctx, func() ([]string, error) { return e.list(ctx) })
	if err != nil {
		return nil, e.caller.wrap("list", "", err)
	}
	return names, nil
}

func (e *Engine) list(ctx context.Context) ([]string, error) {
	var mu sync.Mutex
	names := []string{}
	err := e.caller.each(ctx, func(ctx context.Context, c *redis.Client) error {
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

// Close implements sema.Engine. The Redis client stays open. A connection for notifications that go-redis is still
// setting up cannot be given up: it ends with the server's answer, or the client's ReadTimeout.
func (e *Engine) Close() error {
	e.mu.Lock()
	e.closed = true
	sessions := e.sessions
	e.sessions = map[*session]struct{}{}
	e.mu.Unlock()
	for s := range sessions {
		s.closed.Store(true)
		s.notify(protocol.Notification{Closed: true})
	}
	e.messages.close()
	return nil
}
