package redisengine

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"sema"
)

const (
	// subscribeWait bounds the wait for the server to confirm a subscription.
	subscribeWait = 5 * time.Second
	// healthCheck is how often an idle subscription is probed.
	healthCheck = 10 * time.Second
	// unreadNews is how many messages may wait to be read; more are lost,
	// which costs their receivers the time until they ask again.
	unreadNews = 10_000
)

// inbox receives the news for all sessions of an engine: over one connection,
// or in a cluster over one to each node that has semaphores with waiters here.
type inbox struct {
	rdb redis.UniversalClient

	mu       sync.Mutex
	lines    map[string]*line // by address of the node; "" if there is only one
	channels map[string]*subscription
	closed   bool
	readers  sync.WaitGroup
}

// line is one subscribed connection.
type line struct {
	addr   string
	pubsub *redis.PubSub
	shards bool
}

// subscription is a session's channel on a line.
type subscription struct {
	session *session
	line    *line
	ready   chan struct{} // closed when the server first confirmed
	missed  bool          // news may have been lost before that
}

func newInbox(rdb redis.UniversalClient) *inbox {
	return &inbox{rdb: rdb, lines: map[string]*line{}, channels: map[string]*subscription{}}
}

// open reports whether the session's news have a listener.
func (b *inbox) open(s *session) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	sub := b.channels[s.keys.inbox(s.client)]
	if sub == nil {
		return false
	}
	select {
	case <-sub.ready:
		return true
	default:
		return false
	}
}

// listen subscribes to the session's news and waits for the confirmation.
func (b *inbox) listen(ctx context.Context, s *session) error {
	ctx, cancel := context.WithTimeout(ctx, subscribeWait)
	defer cancel()
	sub, err := b.subscribe(ctx, s)
	if err != nil {
		return err
	}
	select {
	case <-sub.ready:
		return nil
	case <-ctx.Done():
		return errors.Join(errors.New("the server did not confirm the subscription"), ctx.Err())
	}
}

func (b *inbox) subscribe(ctx context.Context, s *session) (*subscription, error) {
	addr, node, err := b.node(ctx, s)
	if err != nil {
		return nil, err
	}
	channel := s.keys.inbox(s.client)
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return nil, sema.ErrClosed
	}
	before := b.channels[channel]
	if before != nil {
		if before.line.addr == addr {
			return before, nil
		}
		_ = before.line.unsubscribe(channel) // moved: the old node will not tell us any more
	}
	l := b.lines[addr]
	if l == nil {
		l = &line{addr: addr}
		if l.shards = node != nil; l.shards {
			l.pubsub = node.SSubscribe(context.Background())
		} else {
			l.pubsub = b.rdb.Subscribe(context.Background())
		}
		b.lines[addr] = l
		b.readers.Go(func() { b.read(l) })
	}
	sub := &subscription{session: s, line: l, ready: make(chan struct{}), missed: before != nil}
	b.channels[channel] = sub
	if err := l.subscribe(ctx, channel); err != nil {
		// The line subscribes when it is connected again.
		return sub, nil //nolint:nilerr // listen waits for the confirmation, and says if there is none
	}
	return sub, nil
}

// node is where the session's semaphore lives, in a cluster.
func (b *inbox) node(ctx context.Context, s *session) (string, *redis.Client, error) {
	cluster, ok := b.rdb.(*redis.ClusterClient)
	if !ok {
		return "", nil, nil
	}
	node, err := cluster.MasterForKey(ctx, s.keys.state())
	if err != nil {
		return "", nil, err
	}
	return node.Options().Addr, node, nil
}

// follow moves the session's subscription if its slot has moved.
func (b *inbox) follow(ctx context.Context, s *session) {
	if _, ok := b.rdb.(*redis.ClusterClient); !ok || !b.open(s) {
		return
	}
	_, _ = b.subscribe(ctx, s) // if it fails now, the next ask tries again
}

// leave ends the session's subscription.
func (b *inbox) leave(s *session) {
	channel := s.keys.inbox(s.client)
	b.mu.Lock()
	defer b.mu.Unlock()
	if sub := b.channels[channel]; sub != nil {
		delete(b.channels, channel)
		_ = sub.line.unsubscribe(channel) // the server forgets it with the connection
	}
}

func (b *inbox) close() {
	b.mu.Lock()
	b.closed = true
	for _, l := range b.lines {
		_ = l.pubsub.Close()
	}
	b.mu.Unlock()
	b.readers.Wait()
}

// read passes on what a line brings until it is closed. go-redis connects
// again by itself and repeats the subscriptions; what was told meanwhile is
// lost, so every confirmation has the session ask.
func (b *inbox) read(l *line) {
	news := l.pubsub.ChannelWithSubscriptions(
		redis.WithChannelSize(unreadNews), redis.WithChannelHealthCheckInterval(healthCheck))
	for item := range news {
		switch m := item.(type) {
		case *redis.Subscription:
			if m.Kind == "subscribe" || m.Kind == "ssubscribe" {
				b.confirmed(l, m.Channel)
			}
		case *redis.Message:
			b.mu.Lock()
			sub := b.channels[m.Channel]
			b.mu.Unlock()
			if sub != nil {
				sub.session.news(m.Payload)
			}
		}
	}
}

func (b *inbox) confirmed(l *line, channel string) {
	b.mu.Lock()
	sub := b.channels[channel]
	b.mu.Unlock()
	if sub == nil || sub.line != l {
		return
	}
	b.mu.Lock()
	missed := sub.missed
	sub.missed = true // whatever comes before a further confirmation
	select {
	case <-sub.ready:
	default:
		close(sub.ready)
	}
	b.mu.Unlock()
	if missed {
		sub.session.wake(sema.Wake{Ask: true})
	}
}

func (l *line) subscribe(ctx context.Context, channel string) error {
	if l.shards {
		return l.pubsub.SSubscribe(ctx, channel)
	}
	return l.pubsub.Subscribe(ctx, channel)
}

func (l *line) unsubscribe(channel string) error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	if l.shards {
		return l.pubsub.SUnsubscribe(ctx, channel)
	}
	return l.pubsub.Unsubscribe(ctx, channel)
}
