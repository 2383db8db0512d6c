package redisengine

import (
	"context"
	"errors"
	"net"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"sema"
)

const (
	// subscribeWait bounds the wait for the server to confirm a subscription.
	subscribeWait = 5 * time.Second
	// healthCheck is how long a line may be silent before it is probed, and
	// how long the answer may then take.
	healthCheck = 10 * time.Second
	// reconnectPause is the time between attempts to connect a line again.
	reconnectPause = 100 * time.Millisecond
)

// inbox receives the news for all sessions of an engine: over one line, or in a
// cluster over one to each node that has semaphores with waiters here.
type inbox struct {
	rdb redis.UniversalClient

	mu       sync.Mutex       // never held while the network is waited for
	lines    map[string]*line // by address of the node; "" if there is only one
	channels map[string]*subscription
	closed   bool
	ctx      context.Context // ends with close
	quit     context.CancelFunc
	readers  sync.WaitGroup
}

// subscription is a session's channel on a line.
type subscription struct {
	session *session
	line    *line
	ready   chan struct{} // closed when the server first confirmed
	refused chan error    // what the server said instead
	missed  bool          // news may have been lost before that
	gone    bool          // the node has ended it: the slot is not its any more
}

func newInbox(rdb redis.UniversalClient) *inbox {
	b := &inbox{rdb: rdb, lines: map[string]*line{}, channels: map[string]*subscription{}}
	b.ctx, b.quit = context.WithCancel(context.Background())
	return b
}

// open reports whether the session's news have a listener.
func (b *inbox) open(s *session) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	sub := b.channels[s.channel]
	return sub != nil && sub.confirmed()
}

func (s *subscription) confirmed() bool {
	select {
	case <-s.ready:
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
	case err := <-sub.refused:
		select {
		case sub.refused <- err: // for the others who wait
		default: // told anew meanwhile
		}
		return err
	case <-ctx.Done():
		return errors.Join(errors.New("the server did not confirm the subscription"), ctx.Err())
	}
}

func (b *inbox) subscribe(ctx context.Context, s *session) (*subscription, error) {
	addr, node, err := b.node(ctx, s)
	if err != nil {
		return nil, err
	}
	channel := s.channel
	b.mu.Lock()
	if b.closed {
		b.mu.Unlock()
		return nil, sema.ErrClosed
	}
	before := b.channels[channel]
	if before != nil && before.line.addr == addr && !before.gone && len(before.refused) == 0 {
		b.mu.Unlock()
		return before, nil
	}
	l := b.lines[addr]
	if l == nil {
		l = &line{addr: addr, shards: node != nil, open: func() *redis.PubSub { return b.rdb.Subscribe(b.ctx) }}
		if l.shards {
			l.open = func() *redis.PubSub { return node.SSubscribe(b.ctx) }
		}
		b.lines[addr] = l
		b.readers.Go(func() { b.read(l) })
	}
	sub := &subscription{session: s, line: l, ready: make(chan struct{}), refused: make(chan error, 1), missed: before != nil}
	b.channels[channel] = sub
	b.mu.Unlock()
	if before != nil && before.line != l {
		b.leaveLine(before, channel) // its node will not tell us any more
	}
	b.send(ctx, l, channel, (*line).subscribe)
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
	if _, ok := b.rdb.(*redis.ClusterClient); !ok {
		return
	}
	b.mu.Lock()
	known := b.channels[s.channel] != nil
	b.mu.Unlock()
	if known {
		_, _ = b.subscribe(ctx, s) // if it fails now, the next ask tries again
	}
}

// leave ends the session's subscription.
func (b *inbox) leave(s *session) {
	channel := s.channel
	b.mu.Lock()
	sub := b.channels[channel]
	delete(b.channels, channel)
	b.mu.Unlock()
	if sub != nil {
		b.leaveLine(sub, channel)
	}
}

// leaveLine takes a subscription that is not current any more off its line. A
// line to one node of a cluster ends with its last one: the node may leave.
func (b *inbox) leaveLine(sub *subscription, channel string) {
	l := sub.line
	b.mu.Lock()
	used := !l.shards
	for _, other := range b.channels {
		used = used || other.line == l
	}
	if used {
		gone := sub.gone
		b.mu.Unlock()
		if !gone {
			b.send(b.ctx, l, channel, (*line).unsubscribe)
		}
		return
	}
	if b.lines[l.addr] == l {
		delete(b.lines, l.addr)
	}
	l.retired = true
	pubsub := l.pubsub
	b.mu.Unlock()
	if pubsub != nil {
		_ = pubsub.Close()
	}
}

// send carries out one command on a line, if it is connected. If not, or if it
// fails, that is made good when it is: it then subscribes to all there is.
func (b *inbox) send(ctx context.Context, l *line, channel string, command func(*line, context.Context, *redis.PubSub, string) error) {
	b.mu.Lock()
	pubsub := l.pubsub
	b.mu.Unlock()
	if pubsub != nil {
		ctx, cancel := context.WithTimeout(ctx, subscribeWait)
		defer cancel()
		_ = command(l, ctx, pubsub, channel)
	}
}

func (b *inbox) close() {
	b.mu.Lock()
	b.closed = true
	b.quit()
	var open []*redis.PubSub
	for _, l := range b.lines {
		if l.pubsub != nil {
			open = append(open, l.pubsub)
		}
	}
	b.mu.Unlock()
	for _, p := range open {
		_ = p.Close()
	}
	b.readers.Wait()
}

// confirmed notes that the server will tell from now on. What it told before
// a line was connected again is lost, so the session asks.
func (b *inbox) confirmed(l *line, channel string) {
	b.mu.Lock()
	sub := b.channels[channel]
	if sub == nil || sub.line != l {
		b.mu.Unlock()
		return
	}
	missed := sub.missed
	sub.missed = true // whatever comes before a further confirmation
	if !sub.confirmed() {
		close(sub.ready)
	}
	b.mu.Unlock()
	if missed {
		sub.session.wake(sema.Wake{Ask: true})
	}
}

func (b *inbox) message(m *redis.Message) {
	b.mu.Lock()
	sub := b.channels[m.Channel]
	b.mu.Unlock()
	if sub != nil {
		sub.session.news(m.Payload)
	}
}

// refused passes on the server's refusal of a subscription to those who wait
// for one: it does not say which it means.
func (b *inbox) refused(l *line, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, sub := range b.channels {
		if sub.line == l && !sub.confirmed() && len(sub.refused) == 0 {
			sub.refused <- err
		}
	}
}

// moved has the sessions whose slot is not the node's any more ask, when
// go-redis has had the time to learn the way, which follow then takes. channel
// is the one that the node ended, or "" if it did not say which.
func (b *inbox) moved(l *line, channel string) {
	var sessions []*session
	b.mu.Lock()
	for name, sub := range b.channels {
		if sub.line == l && (name == channel || channel == "" && !sub.confirmed()) {
			sub.gone = true
			sessions = append(sessions, sub.session)
		}
	}
	b.mu.Unlock()
	if len(sessions) == 0 {
		return
	}
	if cluster, ok := b.rdb.(*redis.ClusterClient); ok {
		cluster.ReloadState(b.ctx)
	}
	for _, s := range sessions {
		s.wake(sema.Wake{Look: reconnectPause})
	}
}

func isTimeout(err error) bool {
	var network net.Error
	return errors.As(err, &network) && network.Timeout()
}

// isReply tells the server's refusals from trouble with the connection.
func isReply(err error) bool {
	var reply redis.Error
	return errors.As(err, &reply) && !strings.HasPrefix(err.Error(), "redis:")
}
