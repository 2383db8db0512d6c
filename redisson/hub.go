package redisson

import (
	"container/list"
	"math/rand/v2"
	"sync"
	"time"
)

// hub knows who in this process waits for what, and whom an event concerns.
//
// Redisson wakes as many threads as the message says permits, which strands a
// thread that needs one permit behind one that needs five. Here an event wakes
// the first waiter, and those behind it whose needs fit. Every attempt brings
// home how many permits are left, and these are offered to the others, so a
// number in a message that is too small or too large strands nobody.
type hub struct {
	client *Client

	mu      sync.Mutex
	entries map[string]*entry // by channel
	feeds   map[string]*feed  // by channel if sharded, else one under ""
	closed  bool
}

// entry is one name that somebody waits for. Both kinds of semaphore share it:
// they share the channel too.
type entry struct {
	channel string
	feed    *feed
	waiters *list.List // of *waiter, in the order they came
	timer   *time.Timer
	due     time.Time // when the timer fires
}

type waiter struct {
	need     int
	collects bool          // its attempts give back permits whose lease has ended
	wake     chan struct{} // holds one signal
	place    *list.Element
	entry    *entry
}

func newHub(c *Client) *hub {
	return &hub{client: c, entries: map[string]*entry{}, feeds: map[string]*feed{}}
}

// signal asks a waiter to try again; a second signal before it does is the same.
func (w *waiter) signal() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// join adds a waiter. It is woken as soon as a message can no longer be missed:
// now if the subscription stands, else when it does.
func (h *hub) join(channel string, sharded bool, need int, collects bool) (*waiter, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return nil, ErrClosed
	}
	e := h.entries[channel]
	if e == nil {
		e = &entry{channel: channel, waiters: list.New()}
		h.entries[channel] = e
		e.feed = h.feedFor(channel, sharded)
		e.feed.want(channel)
		e.timer = time.AfterFunc(h.arm(e), func() { h.tick(e) })
	}
	w := &waiter{need: need, collects: collects, wake: make(chan struct{}, 1), entry: e}
	w.place = e.waiters.PushBack(w)
	if e.feed.live[channel] {
		w.signal()
	}
	return w, nil
}

// leave removes a waiter; available is what its last attempt left over. A
// signal that it did not follow is passed on.
func (h *hub) leave(w *waiter, available int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	e := w.entry
	e.waiters.Remove(w.place)
	if e.waiters.Len() == 0 {
		e.timer.Stop()
		if h.entries[e.channel] == e {
			delete(h.entries, e.channel)
			e.feed.drop(e.channel)
		}
		return
	}
	select {
	case <-w.wake:
		e.wakeFirst()
	default:
	}
	e.offer(available)
}

// refused passes on what a waiter has learned from an attempt without success:
// how many permits there are for others, and when the next lease ends.
func (h *hub) refused(w *waiter, a attempt) {
	h.mu.Lock()
	defer h.mu.Unlock()
	w.entry.offer(a.available)
	if a.next >= 0 && time.Now().Add(a.next).Before(w.entry.due) {
		w.entry.due = time.Now().Add(a.next)
		w.entry.timer.Reset(a.next)
	}
}

// message hears that v permits were released, or that v are there: Redisson
// sends either.
func (h *hub) message(channel string, v int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if e := h.entries[channel]; e != nil {
		e.wakeFirst()
		e.offer(v)
	}
}

// confirmed hears that a subscription stands, again after a reconnect: what was
// published before may have been missed.
func (h *hub) confirmed(f *feed, channel string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !f.wanted[channel] {
		return
	}
	f.live[channel] = true
	if e := h.entries[channel]; e != nil {
		e.wakeFirst()
	}
}

// lost hears that the server ended a subscription, as a cluster does when a
// slot moves.
func (h *hub) lost(f *feed) {
	h.mu.Lock()
	defer h.mu.Unlock()
	f.reopen()
}

// tick is what saves waiters when a message was lost or a holder died.
func (h *hub) tick(e *entry) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.entries[e.channel] != e || h.closed {
		return
	}
	if !e.feed.live[e.channel] {
		e.feed.reopen()
	}
	e.wakeFirst()
	e.wakeCollector()
	e.timer.Reset(h.arm(e))
}

// arm sets when an entry is due at the latest, a little apart from other
// processes.
func (h *hub) arm(e *entry) time.Duration {
	d := h.client.options.Poll
	d -= rand.N(d/8 + 1)
	e.due = time.Now().Add(d)
	return d
}

func (e *entry) wakeFirst() {
	if first := e.waiters.Front(); first != nil {
		first.Value.(*waiter).signal()
	}
}

// wakeCollector wakes the first whose attempt notices leases that ended: if both
// kinds of semaphore wait under one name, the first of all may not.
func (e *entry) wakeCollector() {
	for at := e.waiters.Front(); at != nil; at = at.Next() {
		if w := at.Value.(*waiter); w.collects {
			w.signal()
			return
		}
	}
}

// offer wakes those that v permits serve, in the order they came.
func (e *entry) offer(v int) {
	for at := e.waiters.Front(); at != nil && v > 0; at = at.Next() {
		if w := at.Value.(*waiter); w.need <= v {
			w.signal()
			v -= w.need
		}
	}
}

// close ends all subscriptions; waiters learn it from the client.
func (h *hub) close() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.closed = true
	for _, e := range h.entries {
		e.timer.Stop()
	}
	for _, f := range h.feeds {
		close(f.stop)
	}
	h.feeds = nil
}
