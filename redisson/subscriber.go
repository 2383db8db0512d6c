package redisson

import (
	"context"
	"strconv"

	"github.com/redis/go-redis/v9"
)

// subscriber is one connection with subscriptions. All plain channels share one
// subscriber. Each sharded channel has its own, because channels may be on
// different nodes. Its fields are guarded by dispatcher.mu.
type subscriber struct {
	dispatcher *dispatcher
	key        string // in dispatcher.subscribers
	sharded    bool
	wanted     map[string]bool // channels that somebody waits on
	confirmed  map[string]bool // channels that the server has confirmed
	reconnect  bool            // the connection is to be made anew
	changed    chan struct{}   // holds one signal: wanted or reconnect has changed
	stop       chan struct{}   // closed at the end
}

// subscriberFor is called with dispatcher.mu held.
func (d *dispatcher) subscriberFor(channel string, sharded bool) *subscriber {
	key := ""
	if sharded {
		key = channel
	}
	if s := d.subscribers[key]; s != nil {
		return s
	}
	s := &subscriber{
		dispatcher: d, key: key, sharded: sharded, wanted: map[string]bool{}, confirmed: map[string]bool{},
		changed: make(chan struct{}, 1), stop: make(chan struct{}),
	}
	d.subscribers[key] = s
	d.client.running.Add(1) // not after Close: dispatcher.closed was checked
	go s.run()
	return s
}

func (s *subscriber) signal() {
	select {
	case s.changed <- struct{}{}:
	default:
	}
}

// add asks for the subscription of a channel.
func (s *subscriber) add(channel string) {
	s.wanted[channel] = true
	s.signal()
}

// remove ends the subscription of a channel. The connection of plain channels
// is kept for the next waiter; that of a sharded channel is closed.
func (s *subscriber) remove(channel string) {
	delete(s.wanted, channel)
	if s.sharded && s.dispatcher.subscribers[s.key] == s {
		delete(s.dispatcher.subscribers, s.key)
		close(s.stop)
		return
	}
	s.signal()
}

// resubscribe makes a sharded subscription anew: its slot may have moved to
// another node. A plain one is left to go-redis, which subscribes again by
// itself.
func (s *subscriber) resubscribe() {
	if s.sharded {
		s.reconnect = true
		clear(s.confirmed)
		s.signal()
	}
}

// run subscribes to what is wanted and unsubscribes from what is not. It is a
// goroutine of its own, so that adding and removing a waiter never waits for
// the network.
func (s *subscriber) run() {
	defer s.dispatcher.client.end()
	var pubsub *redis.PubSub
	var forwarded chan struct{} // closed when forward has returned
	closeConnection := func() {
		if pubsub != nil {
			_ = pubsub.Close()
			<-forwarded
			pubsub = nil
		}
	}
	defer closeConnection()
	have := map[string]bool{}
	ctx := context.Background() // writes end by the go-redis client's own timeouts
	for {
		select {
		case <-s.stop:
			return
		case <-s.changed:
		}
		add, remove, reconnect := s.changes(have)
		if reconnect {
			closeConnection()
			clear(have)
			add, remove, _ = s.changes(have)
		}
		// Errors may be ignored: go-redis remembers the channels and subscribes
		// when it has a connection again.
		if pubsub != nil && len(remove) > 0 {
			_ = pubsub.Unsubscribe(ctx, remove...)
		}
		if len(add) == 0 {
			continue
		}
		isNew := pubsub == nil
		if isNew && s.sharded {
			pubsub = s.dispatcher.client.rdb.SSubscribe(ctx)
		} else if isNew {
			pubsub = s.dispatcher.client.rdb.Subscribe(ctx)
		}
		if s.sharded {
			_ = pubsub.SSubscribe(ctx, add...)
		} else {
			_ = pubsub.Subscribe(ctx, add...)
		}
		if isNew {
			forwarded = make(chan struct{})
			go s.forward(pubsub.ChannelWithSubscriptions(), forwarded)
		}
	}
}

// changes compares what there is with what is wanted, and updates have.
func (s *subscriber) changes(have map[string]bool) (add, remove []string, reconnect bool) {
	s.dispatcher.mu.Lock()
	defer s.dispatcher.mu.Unlock()
	reconnect, s.reconnect = s.reconnect, false
	for channel := range s.wanted {
		if !have[channel] {
			have[channel] = true
			add = append(add, channel)
		}
	}
	for channel := range have {
		if !s.wanted[channel] {
			delete(have, channel)
			delete(s.confirmed, channel)
			remove = append(remove, channel)
		}
	}
	return add, remove, reconnect
}

// forward passes on what arrives until the subscription is closed.
func (s *subscriber) forward(events <-chan any, forwarded chan<- struct{}) {
	defer close(forwarded)
	for event := range events {
		switch e := event.(type) {
		case *redis.Subscription:
			switch e.Kind {
			case "subscribe", "ssubscribe":
				s.dispatcher.subscribed(s, e.Channel)
			case "sunsubscribe":
				s.dispatcher.unsubscribed(s)
			}
		case *redis.Message:
			v, err := strconv.Atoi(e.Payload)
			if err != nil {
				v = 1 // not a number, so not from Redisson, but still a reason to try
			}
			s.dispatcher.message(e.Channel, v)
		}
	}
}
