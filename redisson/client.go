package redisson

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
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

	// Poll is how long a process with waiters goes without asking the server,
	// if no message arrives and no lease ends; at least 10 ms, default 1 s.
	// One waiter per name asks, not each.
	Poll time.Duration

	// Timeout bounds how long one operation is tried before it fails, as
	// unavailable servers or unknown outcomes make it necessary; at least
	// 10 ms, default 5 s. A send that hangs is ended by the go-redis client's
	// own ReadTimeout.
	Timeout time.Duration

	// NoReceipts keeps the package to the keys that Redisson uses itself.
	// Without receipts a counter's operation is sent once and its outcome may
	// stay unknown; see the package documentation.
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
	rdb     redis.UniversalClient
	cluster bool
	options Options
	hub     *hub

	publish atomic.Pointer[string] // the command, once known

	life      context.Context // ends what still runs some time after Close
	endLife   context.CancelFunc
	unsettled atomic.Int64

	mu      sync.Mutex
	closed  bool
	closing chan struct{} // closed when Close begins
	running sync.WaitGroup
}

// New returns a Client that works through rdb: a *redis.Client (alone, or made
// by redis.NewFailoverClient) or a *redis.ClusterClient. It sends nothing yet.
// A nil options means the defaults. Values out of range, a *redis.Ring, which
// has no counterpart in Redisson, and a client that would wait for an answer for
// ever give an *ArgumentError.
//
// Retries that rdb is set up with do not apply to the requests of this package.
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
		return nil, invalid("client", nil, "must not be nil")
	case c.options.Poll < shortest:
		return nil, invalid("Options.Poll", c.options.Poll, "must be at least 10ms")
	case c.options.Timeout < shortest:
		return nil, invalid("Options.Timeout", c.options.Timeout, "must be at least 10ms")
	case c.options.Channels < AutoChannels || c.options.Channels > ShardedChannels:
		return nil, invalid("Options.Channels", int(c.options.Channels), "must be one of the constants")
	}
	endless := false
	switch r := rdb.(type) {
	case *redis.Ring:
		return nil, invalid("client", "*redis.Ring", "must be one server, Sentinel or a cluster")
	case *redis.ClusterClient:
		c.cluster = true
		o := r.Options()
		endless = !o.ContextTimeoutEnabled && (o.ReadTimeout <= 0 || o.WriteTimeout <= 0)
	case *redis.Client:
		o := r.Options()
		endless = !o.ContextTimeoutEnabled && (o.ReadTimeout <= 0 || o.WriteTimeout <= 0)
	}
	if endless {
		return nil, invalid("client", fmt.Sprintf("%T", rdb), "must have a ReadTimeout and a WriteTimeout, or ContextTimeoutEnabled")
	}
	c.hub = newHub(c)
	c.life, c.endLife = context.WithCancel(context.Background())
	return c, nil
}

// Close ends all waits with ErrClosed and lets operations in flight finish,
// which takes Options.Timeout at most plus what one send may hang. It does not
// close the go-redis client, and permits stay held. ErrUnsettled tells that the
// outcome of some operations could not be made certain. A second Close does
// nothing.
func (c *Client) Close() error {
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		return nil
	}
	c.closed = true
	close(c.closing)
	c.mu.Unlock()
	grace := time.AfterFunc(c.options.Timeout, c.endLife)
	defer grace.Stop()
	c.hub.close()
	c.running.Wait()
	c.endLife()
	if n := c.unsettled.Load(); n > 0 {
		return fmt.Errorf("%w: %d", ErrUnsettled, n)
	}
	return nil
}

// begin counts something in that Close has to wait for.
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

// publishCommand finds out once how wake-ups travel, as Redisson does: sharded
// only on a cluster, if the server knows the subcommand.
func (c *Client) publishCommand(ctx context.Context) (string, error) {
	if known := c.publish.Load(); known != nil {
		return *known, nil
	}
	command := "publish"
	switch {
	case c.options.Channels == ShardedChannels:
		command = "spublish"
	case c.options.Channels == AutoChannels && c.cluster:
		err := c.rdb.PubSubShardNumSub(ctx).Err()
		var reply redis.Error
		switch {
		case err == nil:
			command = "spublish"
		case !errors.As(err, &reply) || judge(err) == unsent:
			return "", err
		}
	}
	c.publish.Store(&command)
	return command, nil
}

// sharded tells how wake-ups travel; only after publishCommand succeeded.
func (c *Client) sharded() bool { return *c.publish.Load() == "spublish" }
