package redisengine

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"sema/engine"
	"sema/internal/protocol"
	"sema/internal/redissub"
)

// dispatcher passes on messages to the sessions that subscribed to them. It has
// one subscriber; in a cluster, one for each node with a semaphore that a
// session here waits for.
type dispatcher struct {
	topology *topology

	mu          sync.Mutex // never held during a wait for the network or a session
	subscribers map[string]*subscriber
	channels    map[string]*subscription
	closed      bool
}

// subscriber is a connection to a node.
type subscriber struct {
	*redissub.Subscriber
	node node
}

// subscription is a session's channel on a subscriber.
type subscription struct {
	channel string
	notify  func(protocol.Notification)
	on      *subscriber

	confirmed atomic.Bool   // the server has confirmed the subscription at least once
	ready     chan struct{} // closed at the first confirmation
	refusal   chan error    // receives the error with which the server refused

	// Guarded by the dispatcher's lock.
	missed    bool // a message may have been lost before the next confirmation
	slotMoved bool // the slot has moved to another node
	suspect   bool // the server said that nobody listens, and no message came since
}

func newDispatcher(t *topology) *dispatcher {
	return &dispatcher{topology: t, subscribers: map[string]*subscriber{}, channels: map[string]*subscription{}}
}

// subscribe returns the subscription to a channel. It reuses the existing one
// if the key is still on the same node. It does not wait for the server.
func (d *dispatcher) subscribe(ctx context.Context, key, channel string, notify func(protocol.Notification)) (*subscription, error) {
	n, err := d.topology.node(ctx, key)
	if err != nil {
		return nil, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return nil, engine.ErrClosed
	}
	before := d.channels[channel]
	if before != nil && before.on.node.addr == n.addr && !before.slotMoved && len(before.refusal) == 0 {
		return before, nil
	}
	on := d.subscribers[n.addr]
	if on == nil {
		on = &subscriber{redissub.New(n.Node, d), n}
		d.subscribers[n.addr] = on
	}
	sub := &subscription{
		channel: channel, notify: notify, on: on, missed: before != nil,
		ready: make(chan struct{}), refusal: make(chan error, 1),
	}
	d.channels[channel] = sub
	if before != nil && before.on != on {
		d.drop(before)
	}
	on.Set(channel, true)
	return sub, nil
}

// wait waits up to most for the server to confirm a subscription, and returns
// the server's refusal. A missing confirmation is no error: when it comes, the
// session is told to ask again.
func (d *dispatcher) wait(ctx context.Context, sub *subscription, most time.Duration) error {
	timer := time.NewTimer(most)
	defer timer.Stop()
	select {
	case <-sub.ready:
		return nil
	case err := <-sub.refusal:
		select {
		case sub.refusal <- err: // kept, so that the next call subscribes again
		default:
		}
		return err
	case <-ctx.Done():
	case <-timer.C:
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	sub.missed = true
	return nil
}

// resubscribe is called when the server says that nobody listens to a subscription.
// The first time it sends the subscription again. If the server says so once more
// before a message comes, the connection is replaced: either it is dead and this end
// has not noticed, or it leads to a server that is no longer the master. Such a server
// confirms every subscription, and never sends a message.
func (d *dispatcher) resubscribe(sub *subscription) {
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case d.channels[sub.channel] != sub || len(sub.refusal) > 0:
	case sub.suspect:
		sub.on.Reconnect(settleTime)
	default:
		sub.suspect = true
		sub.on.Set(sub.channel, true)
	}
}

// unsubscribe ends a session's subscription.
func (d *dispatcher) unsubscribe(channel string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if sub := d.channels[channel]; sub != nil {
		delete(d.channels, channel)
		d.drop(sub)
	}
}

// drop removes a subscription that is no longer current from its subscriber. In a
// cluster, the last subscription to a node closes the connection, because the
// node may leave the cluster.
func (d *dispatcher) drop(sub *subscription) {
	on := sub.on
	on.Set(sub.channel, false)
	if !on.node.Sharded {
		return
	}
	for _, other := range d.channels {
		if other.on == on {
			return
		}
	}
	if d.subscribers[on.node.addr] == on {
		delete(d.subscribers, on.node.addr)
	}
	on.Quit()
}

// close ends all subscribers. It waits up to closeWait in all, because a
// connection may hang.
func (d *dispatcher) close() {
	d.mu.Lock()
	d.closed = true
	all := d.subscribers
	d.subscribers, d.channels = map[string]*subscriber{}, map[string]*subscription{}
	d.mu.Unlock()
	for _, s := range all {
		s.Quit()
	}
	timer := time.NewTimer(closeWait)
	defer timer.Stop()
	for _, s := range all {
		select {
		case <-s.Done():
		case <-timer.C:
			return
		}
	}
}

const (
	closeWait  = 200 * time.Millisecond
	moveTime   = 100 * time.Millisecond // for the cluster's map to be read again
	settleTime = time.Second            // for a new connection and its subscriptions
)

// Confirmed notes that the server delivers messages on a channel from now on.
// Earlier messages may be lost, for example before a reconnect; then the
// session asks again.
func (d *dispatcher) Confirmed(on *redissub.Subscriber, channel string) {
	d.mu.Lock()
	sub := d.channels[channel]
	if sub == nil || sub.on.Subscriber != on {
		d.mu.Unlock()
		return
	}
	missed := sub.missed
	sub.missed = true // a further confirmation means that messages may have been lost before it
	if !sub.confirmed.Swap(true) {
		close(sub.ready)
	}
	d.mu.Unlock()
	if missed {
		sub.notify(protocol.Notification{Ask: true})
	}
}

// Message passes a message on to its session.
func (d *dispatcher) Message(channel, payload string) {
	d.mu.Lock()
	sub := d.channels[channel]
	if sub != nil {
		sub.suspect = false
	}
	d.mu.Unlock()
	if sub != nil {
		sub.notify(parseNotification(payload))
	}
}

// Refused passes a refusal on to all subscriptions that wait for a
// confirmation.
func (d *dispatcher) Refused(on *redissub.Subscriber, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, sub := range d.channels {
		if sub.on.Subscriber == on && !sub.confirmed.Load() && len(sub.refusal) == 0 {
			on.Set(sub.channel, false)
			sub.refusal <- err
		}
	}
}

// Ended handles a slot that has left a node. The session asks again after
// moveTime, when go-redis has read the cluster's map again. That ask moves the
// subscription.
func (d *dispatcher) Ended(on *redissub.Subscriber, channel string) {
	d.mu.Lock()
	sub := d.channels[channel]
	current := sub != nil && sub.on.Subscriber == on
	if current {
		sub.slotMoved = true
	}
	d.mu.Unlock()
	if current {
		d.topology.reload(context.Background())
		sub.notify(protocol.Notification{Recheck: moveTime})
	}
}
