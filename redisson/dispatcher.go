package redisson

import (
	"context"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"sema/internal/redissub"
)

// dispatcher knows which waiters of this process wait on which channel, and
// decides whom an event wakes.
//
// Redisson wakes as many threads as the message names permits. A thread that
// needs five permits can then take the wake-up from one that needs a single
// permit. Here an event wakes the first waiter, and those behind it whose needs
// fit. Every attempt learns how many permits are available, and the dispatcher
// wakes others for these. So it does no harm when a message names too few
// permits or too many.
type dispatcher struct {
	client *Client

	mu     sync.Mutex
	lists  map[string]*waitList // by channel
	plain  *redissub.Subscriber // of all channels that are not sharded; nil: there was none
	closed bool
}

// waitList is the waiters of one channel. Both kinds of semaphore are in it if
// they have the same name, because they share the channel.
type waitList struct {
	channel   string
	sharded   bool
	on        *redissub.Subscriber // its own if it is sharded: channels may be on different nodes
	confirmed bool                 // the server tells what is published
	refused   bool                 // the server refused this subscription, or another one
	waiters   []*waiter            // in the order they came
	timer     *time.Timer
	due       time.Time // when the timer fires
}

// waiter is one blocked Acquire.
type waiter struct {
	need     int
	collects bool          // its attempts return permits whose lease has ended
	wake     chan struct{} // holds one signal
	list     *waitList
}

func newDispatcher(c *Client) *dispatcher {
	return &dispatcher{client: c, lists: map[string]*waitList{}}
}

// signal asks a waiter to try again. Further signals before it does so change
// nothing.
func (w *waiter) signal() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// add adds a waiter. The waiter is woken once as soon as the subscription
// stands, because a message may have been missed before; at once if it stands.
func (d *dispatcher) add(channel string, sharded bool, need int, collects bool) (*waiter, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return nil, ErrClosed
	}
	l := d.lists[channel]
	if l == nil {
		l = &waitList{channel: channel, sharded: sharded, on: d.subscriber(sharded)}
		d.lists[channel] = l
		l.on.Set(channel, true)
		l.timer = time.AfterFunc(d.schedulePoll(l), func() { d.timerFired(l) })
	}
	w := &waiter{need: need, collects: collects, wake: make(chan struct{}, 1), list: l}
	l.waiters = append(l.waiters, w)
	if l.confirmed {
		w.signal()
	}
	return w, nil
}

// subscriber is the one of a new list, with the lock held.
func (d *dispatcher) subscriber(sharded bool) *redissub.Subscriber {
	if sharded {
		return d.connect(redissub.Node{Sharded: true, Open: func(ctx context.Context) *redis.PubSub { return d.client.rdb.SSubscribe(ctx) }})
	}
	if d.plain == nil {
		d.plain = d.connect(redissub.Node{Open: func(ctx context.Context) *redis.PubSub { return d.client.rdb.Subscribe(ctx) }})
	}
	return d.plain
}

// connect makes a subscriber, whose end Close waits for.
func (d *dispatcher) connect(n redissub.Node) *redissub.Subscriber {
	s := redissub.New(n, d)
	d.client.running.Add(1) // not after Close: closed was checked
	go func() {
		defer d.client.end()
		<-s.Done()
	}()
	return s
}

// remove removes a waiter. available is how many permits its last attempt left.
// If the waiter was woken and did not try again, the first of the others is
// woken in its place.
func (d *dispatcher) remove(w *waiter, available int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	l := w.list
	at := slices.Index(l.waiters, w)
	l.waiters = slices.Delete(l.waiters, at, at+1)
	if len(l.waiters) == 0 {
		l.timer.Stop()
		if d.lists[l.channel] == l {
			delete(d.lists, l.channel)
			l.on.Set(l.channel, false) // the connection of plain channels stays for the next waiter
			if l.sharded {
				l.on.Quit()
			}
		}
		return
	}
	select {
	case <-w.wake:
		l.wakeFirst()
	default:
	}
	l.wakeFor(available)
}

// attemptFailed passes on what a waiter has learned from an attempt without
// success: how many permits are available for others, and when the next lease
// ends.
func (d *dispatcher) attemptFailed(w *waiter, a attempt) {
	d.mu.Lock()
	defer d.mu.Unlock()
	w.list.wakeFor(a.available)
	if a.next >= 0 && time.Now().Add(a.next).Before(w.list.due) {
		w.list.due = time.Now().Add(a.next)
		w.list.timer.Reset(a.next)
	}
}

// Message handles a message. Its number says that v permits were released, or
// that v are available; Redisson sends either.
func (d *dispatcher) Message(channel, payload string) {
	v, err := strconv.Atoi(payload)
	if err != nil {
		v = 1 // not a number, so not from Redisson, but still a reason to try
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if l := d.lists[channel]; l != nil {
		l.wakeFirst()
		l.wakeFor(v)
	}
}

// Confirmed handles the server's word that a subscription stands, also after a
// reconnect. Messages may have been missed before.
func (d *dispatcher) Confirmed(on *redissub.Subscriber, channel string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if l := d.lists[channel]; l != nil && l.on == on && !l.refused {
		l.confirmed = true
		l.wakeFirst()
	}
}

// Refused handles the server's refusal of a subscription. It is asked for again
// with the next attempt that is due without a message.
func (d *dispatcher) Refused(on *redissub.Subscriber, _ error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, l := range d.lists {
		if l.on == on && !l.confirmed {
			l.refused = true
			on.Set(l.channel, false)
		}
	}
}

// Ended handles the server's word that it ended a sharded subscription, or does
// not have its slot, as when slots move. It is asked for again when the cluster's
// map has had the time to be read again.
func (d *dispatcher) Ended(on *redissub.Subscriber, _ string) {
	if c, ok := d.client.rdb.(*redis.ClusterClient); ok {
		c.ReloadState(context.Background())
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, l := range d.lists {
		if l.on == on {
			l.confirmed = false
			time.AfterFunc(moveTime, func() { d.again(l, 0) })
		}
	}
}

// again asks again for a subscription that the server has not confirmed. A
// sharded one may have moved to another node, so its connection is made anew
// unless it is younger than age.
func (d *dispatcher) again(l *waitList, age time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.lists[l.channel] != l || l.confirmed || d.closed {
		return
	}
	l.refused = false
	l.on.Set(l.channel, true)
	if l.sharded {
		l.on.Reconnect(age)
	}
}

const (
	moveTime   = 100 * time.Millisecond // for the cluster's map to be read again
	settleTime = time.Second            // for a new connection and its subscription
)

// timerFired wakes waiters without a message: one may have been lost, and a
// holder may have died.
func (d *dispatcher) timerFired(l *waitList) {
	d.again(l, settleTime)
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.lists[l.channel] != l || d.closed {
		return
	}
	l.wakeFirst()
	l.wakeCollector()
	l.timer.Reset(d.schedulePoll(l))
}

// schedulePoll sets when the next attempt without a message is due at the
// latest. A random part keeps processes from asking all at once.
func (d *dispatcher) schedulePoll(l *waitList) time.Duration {
	poll := d.client.options.Poll
	poll -= rand.N(poll/8 + 1)
	l.due = time.Now().Add(poll)
	return poll
}

func (l *waitList) wakeFirst() {
	if len(l.waiters) > 0 {
		l.waiters[0].signal()
	}
}

// wakeCollector wakes the first waiter whose attempt returns permits of ended
// leases. The first of all may wait for the other kind of semaphore, whose
// attempts do not look at leases.
func (l *waitList) wakeCollector() {
	if at := slices.IndexFunc(l.waiters, func(w *waiter) bool { return w.collects }); at >= 0 {
		l.waiters[at].signal()
	}
}

// wakeFor wakes the waiters that v permits are enough for, in the order they
// came.
func (l *waitList) wakeFor(v int) {
	for _, w := range l.waiters {
		if v < 1 {
			return
		}
		if w.need <= v {
			w.signal()
			v -= w.need
		}
	}
}

// close ends all subscriptions. Waiters learn of it from the client.
func (d *dispatcher) close() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.closed = true
	for _, l := range d.lists {
		l.timer.Stop()
		l.on.Quit()
	}
	if d.plain != nil {
		d.plain.Quit()
	}
}
