package redisson

import (
	"context"
	"fmt"
	"reflect"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"sema/internal/once"
	"sema/internal/rediserror"
)

// Channels says which publish/subscribe commands carry the wake-ups. All
// clients of a semaphore must use the same: PUBLISH does not reach SSUBSCRIBE,
// nor the other way.
type Channels int

const (
	// AutoChannels does what Redisson 3.22 and later do by default:
	// ShardedChannels on a cluster whose servers know them (Redis 7), else
	// PlainChannels.
	AutoChannels Channels = iota
	// PlainChannels is PUBLISH and SUBSCRIBE: what Redisson before 3.22, or
	// with shardedSubscriptionMode OFF, uses on a cluster too.
	PlainChannels
	// ShardedChannels is SPUBLISH and SSUBSCRIBE.
	ShardedChannels
)

// Options changes a Client. The zero value, or nil, means the defaults.
type Options struct {
	// Channels is the kind of publish/subscribe; default AutoChannels.
	Channels Channels

	// Poll is how long a process with waiters goes without asking the server
	// when no message arrives and no lease ends; at least 10 ms, default 1 s.
	// One waiter per name asks, not each.
	Poll time.Duration

	// Timeout bounds how long one operation is tried while the server cannot
	// be reached or the outcome is unknown; at least 10 ms, default 5 s. A
	// request that hangs is ended by the go-redis client's own ReadTimeout.
	Timeout time.Duration

	// NoReceipts restricts the package to the keys that Redisson uses itself.
	// Without receipts an operation on a counter is sent once and its outcome
	// may stay unknown; see the package documentation.
	NoReceipts bool
}

const (
	defaultPoll    = time.Second
	defaultTimeout = 5 * time.Second
	shortest       = 10 * time.Millisecond
)

// Client makes semaphores on one Redis. It holds the process's subscriptions:
// one per name that somebody waits for, however many wait. Use one Client per
// process and Redis. It is safe for concurrent use.
type Client struct {
	rdb        redis.UniversalClient
	cluster    bool
	options    Options
	dispatcher *dispatcher

	publish atomic.Pointer[string] // the command, once known

	lifetime    context.Context // ends some time after Close, and with it what still runs
	endLifetime context.CancelFunc
	unsettled   atomic.Int64

	once    once.Once // of Close
	mu      sync.Mutex
	closed  bool
	closing chan struct{} // closed when Close begins
	running sync.WaitGroup
}

// New returns a Client that works through rdb: a *redis.Client (alone, or made
// by redis.NewFailoverClient) or a *redis.ClusterClient. It sends nothing yet.
// A nil options means the defaults. The error is an *ArgumentError: for values
// out of range, for a *redis.Ring, which has no counterpart in Redisson, and for
// a client that would wait for an answer for ever.
//
// The MaxRetries of rdb does not apply to the requests of this package.
func New(rdb redis.UniversalClient, options *Options) (*Client, error) {
	c := &Client{rdb: rdb, closing: make(chan struct{})}
	if options != nil {
		c.options = *options
	}
	if c.options.Poll == 0 {
		c.options.Poll = defaultPoll
	}
	if c.options.Timeout == 0 {
		c.options.Timeout = defaultTimeout
	}
	switch {
	case rdb == nil || reflect.ValueOf(rdb).Kind() == reflect.Pointer && reflect.ValueOf(rdb).IsNil():
		return nil, invalid("client", nil, "a *redis.Client or a *redis.ClusterClient")
	case c.options.Poll < shortest:
		return nil, invalid("Options.Poll", c.options.Poll, "at least 10ms")
	case c.options.Timeout < shortest:
		return nil, invalid("Options.Timeout", c.options.Timeout, "at least 10ms")
	case c.options.Channels < AutoChannels || c.options.Channels > ShardedChannels:
		return nil, invalid("Options.Channels", int(c.options.Channels), "AutoChannels, PlainChannels or ShardedChannels")
	}
	endless := false
	switch r := rdb.(type) {
	case *redis.Ring:
		return nil, invalid("client", "*redis.Ring", "a client for one server, Sentinel or a cluster")
	case *redis.ClusterClient:
		c.cluster = true
		o := r.Options()
		endless = !o.ContextTimeoutEnabled && (o.ReadTimeout <= 0 || o.WriteTimeout <= 0)
	case *redis.Client:
		o := r.Options()
		endless = !o.ContextTimeoutEnabled && (o.ReadTimeout <= 0 || o.WriteTimeout <= 0)
	}
	if endless {
		return nil, invalid("client", fmt.Sprintf("%T", rdb), "one with ReadTimeout and WriteTimeout, or with ContextTimeoutEnabled")
	}
	c.dispatcher = newDispatcher(c)
	c.lifetime, c.endLifetime = context.WithCancel(context.Background())
	return c, nil
}

// Close ends all waits with ErrClosed and lets operations in flight finish. That
// takes at most Options.Timeout, and the go-redis client's ReadTimeout if a
// request hangs. It does not close the go-redis client, and permits stay held.
// ErrUnsettled tells that the outcome of some operations could not be made
// certain. A second Close waits for the first, and has no error.
func (c *Client) Close() error {
	var unsettled error
	c.once.Do(func() {
		c.mu.Lock()
		c.closed = true
		close(c.closing)
		c.mu.Unlock()
		grace := time.AfterFunc(c.options.Timeout, c.endLifetime)
		defer grace.Stop()
		c.dispatcher.close()
		c.running.Wait()
		c.endLifetime()
		if n := c.unsettled.Load(); n > 0 {
			unsettled = fmt.Errorf("%w: %d", ErrUnsettled, n)
		}
	})
	return unsettled
}

// begin tells Close to wait for one more thing, until end. It returns false
// when the Client is closed.
func (c *Client) begin() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return false
	}
	c.running.Add(1)
	return true
}

func (c *Client) end() { c.running.Done() }

// publishCommand is the command that wakes waiters. It finds out once, as
// Redisson does: SPUBLISH only on a cluster whose servers know PUBSUB
// SHARDNUMSUB. It fails if the client is for one server and the server is a
// node of a cluster, where some names work and others do not.
func (c *Client) publishCommand(ctx context.Context) (string, error) {
	if known := c.publish.Load(); known != nil {
		return *known, nil
	}
	if err := rediserror.Fits(ctx, c.rdb); err != nil {
		return "", err
	}
	command := "publish"
	switch {
	case c.options.Channels == ShardedChannels:
		command = "spublish"
	case c.options.Channels == AutoChannels && c.cluster:
		err := c.rdb.PubSubShardNumSub(ctx).Err()
		switch {
		case err == nil:
			command = "spublish"
		case !rediserror.FromServer(err) || rediserror.Sort(err).Temporary:
			return "", err
		}
	}
	c.publish.Store(&command)
	return command, nil
}

// sharded tells whether waiters are woken by SPUBLISH. Call it only after
// publishCommand has succeeded.
func (c *Client) sharded() bool { return *c.publish.Load() == "spublish" }
