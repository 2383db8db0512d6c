package redisengine

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"sema/engine"
	"sema/internal/redissub"
)

// dispatcher knows which session wants which messages. There is one subscriber,
// or in a cluster one for each node that has semaphores with waiters here.
type dispatcher struct {
	topology *topology

	mu          sync.Mutex // never held while the network, or a session, is waited for
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
	notify  func(engine.Notification)
	on      *subscriber

	heard   atomic.Bool   // the server has confirmed it
	ready   chan struct{} // closed when it first did
	refusal chan error    // what it said instead

	// Guarded by the dispatcher's lock.
	missed  bool // a message may have been lost before the next confirmation
	gone    bool // the slot is not that node's any more
	doubted bool // the server said that nobody listens, and has told nothing since
}

func newDispatcher(t *topology) *dispatcher {
	return &dispatcher{topology: t, subscribers: map[string]*subscriber{}, channels: map[string]*subscription{}}
}

// subscribe returns the subscription to a channel, which is that of before if
// the key is still on its node. It does not wait for the server.
func (d *dispatcher) subscribe(ctx context.Context, key, channel string, notify func(engine.Notification)) (*subscription, error) {
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
	if before != nil && before.on.node.addr == n.addr && !before.gone && len(before.refusal) == 0 {
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

// wait waits a while for the server to confirm a subscription. It is no error
// that it did not: it will, and then the session is told to ask.
func (d *dispatcher) wait(ctx context.Context, sub *subscription, most time.Duration) error {
	timer := time.NewTimer(most)
	defer timer.Stop()
	select {
	case <-sub.ready:
		return nil
	case err := <-sub.refusal:
		select {
		case sub.refusal <- err: // so that it is asked for again
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

// deaf takes in that a session's server says nobody listens to a subscription.
// It is asked for again. If the server says so once more before anything was heard,
// the connection is dead and its end has not noticed, or it is to a server that is
// not the master any more, which confirms whatever is asked for: then it is made anew.
func (d *dispatcher) deaf(sub *subscription) {
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case d.channels[sub.channel] != sub || len(sub.refusal) > 0:
	case sub.doubted:
		sub.on.Reconnect(settleTime)
	default:
		sub.doubted = true
		sub.on.Set(sub.channel, true)
	}
}

// leave ends a session's subscription.
func (d *dispatcher) leave(channel string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if sub := d.channels[channel]; sub != nil {
		delete(d.channels, channel)
		d.drop(sub)
	}
}

// drop takes a subscription that is not current any more off its subscriber. The
// connection to one node of a cluster ends with its last one: the node may leave.
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

// close ends all subscribers. It does not wait long for one whose connection
// hangs.
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

// Confirmed notes that the server will tell from now on. What it told before a
// connection was made again is lost, so the session asks.
func (d *dispatcher) Confirmed(on *redissub.Subscriber, channel string) {
	d.mu.Lock()
	sub := d.channels[channel]
	if sub == nil || sub.on.Subscriber != on {
		d.mu.Unlock()
		return
	}
	missed := sub.missed
	sub.missed = true // whatever comes before a further confirmation
	if !sub.heard.Swap(true) {
		close(sub.ready)
	}
	d.mu.Unlock()
	if missed {
		sub.notify(engine.Notification{Ask: true})
	}
}

// Message passes on what the server tells.
func (d *dispatcher) Message(channel, payload string) {
	d.mu.Lock()
	sub := d.channels[channel]
	if sub != nil {
		sub.doubted = false
	}
	d.mu.Unlock()
	if sub != nil {
		sub.notify(parseNotification(payload))
	}
}

// Refused passes on a refusal to all who wait for a confirmation.
func (d *dispatcher) Refused(on *redissub.Subscriber, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, sub := range d.channels {
		if sub.on.Subscriber == on && !sub.heard.Load() && len(sub.refusal) == 0 {
			on.Set(sub.channel, false)
			sub.refusal <- err
		}
	}
}

// Ended handles a slot that has left a node. The session asks again, when the
// cluster's map has had the time to be read again: asking moves the subscription.
func (d *dispatcher) Ended(on *redissub.Subscriber, channel string) {
	d.mu.Lock()
	sub := d.channels[channel]
	current := sub != nil && sub.on.Subscriber == on
	if current {
		sub.gone = true
	}
	d.mu.Unlock()
	if current {
		d.topology.moved(context.Background())
		sub.notify(engine.Notification{Recheck: moveTime})
	}
}
