package redisson

import (
	"context"
	"strconv"

	"github.com/redis/go-redis/v9"
)

// feed is one connection that subscriptions run over: a single one for all
// plain channels; with sharded channels one per name, since each may live on
// another node. Fields are guarded by hub.mu.
type feed struct {
	hub     *hub
	key     string
	sharded bool
	wanted  map[string]bool
	live    map[string]bool // confirmed by the server, and since then not given up
	restart bool
	kick    chan struct{} // holds one signal: something changed
	stop    chan struct{}
}

// feedFor is called with hub.mu held.
func (h *hub) feedFor(channel string, sharded bool) *feed {
	key := ""
	if sharded {
		key = channel
	}
	if f := h.feeds[key]; f != nil {
		return f
	}
	f := &feed{
		hub: h, key: key, sharded: sharded, wanted: map[string]bool{}, live: map[string]bool{},
		kick: make(chan struct{}, 1), stop: make(chan struct{}),
	}
	h.feeds[key] = f
	h.client.running.Add(1) // not after Close: hub.closed was checked
	go f.run()
	return f
}

func (f *feed) changed() {
	select {
	case f.kick <- struct{}{}:
	default:
	}
}

func (f *feed) want(channel string) { f.wanted[channel] = true; f.changed() }

// drop ends the subscription of a channel. The connection of plain channels
// stays for the next waiter, that of a sharded one goes.
func (f *feed) drop(channel string) {
	delete(f.wanted, channel)
	if f.sharded && f.hub.feeds[f.key] == f {
		delete(f.hub.feeds, f.key)
		close(f.stop)
		return
	}
	f.changed()
}

// reopen has a sharded subscription made anew, by then perhaps on another node.
// A plain one is left to go-redis, which subscribes again by itself.
func (f *feed) reopen() {
	if f.sharded {
		f.restart = true
		clear(f.live)
		f.changed()
	}
}

// run makes what is subscribed follow what is wanted. It does the network's
// work, so that joining and leaving never wait for it.
func (f *feed) run() {
	defer f.hub.client.end()
	var pubsub *redis.PubSub
	pumped := make(chan struct{})
	shut := func() {
		if pubsub != nil {
			_ = pubsub.Close()
			<-pumped
			pubsub, pumped = nil, make(chan struct{})
		}
	}
	defer shut()
	have := map[string]bool{}
	ctx := context.Background() // writes end by the go-redis client's own timeouts
	for {
		select {
		case <-f.stop:
			return
		case <-f.kick:
		}
		add, remove, restart := f.difference(have)
		if restart {
			shut()
			clear(have)
			add, remove, _ = f.difference(have)
		}
		// Errors are not lost: go-redis remembers the channels and subscribes
		// when it has a connection again.
		if pubsub != nil && len(remove) > 0 {
			_ = pubsub.Unsubscribe(ctx, remove...)
		}
		if len(add) == 0 {
			continue
		}
		opened := pubsub == nil
		if opened && f.sharded {
			pubsub = f.hub.client.rdb.SSubscribe(ctx)
		} else if opened {
			pubsub = f.hub.client.rdb.Subscribe(ctx)
		}
		if f.sharded {
			_ = pubsub.SSubscribe(ctx, add...)
		} else {
			_ = pubsub.Subscribe(ctx, add...)
		}
		if opened {
			go f.pump(pubsub.ChannelWithSubscriptions(), pumped)
		}
	}
}

// difference compares have with what is wanted, and updates it.
func (f *feed) difference(have map[string]bool) (add, remove []string, restart bool) {
	f.hub.mu.Lock()
	defer f.hub.mu.Unlock()
	restart, f.restart = f.restart, false
	for channel := range f.wanted {
		if !have[channel] {
			have[channel] = true
			add = append(add, channel)
		}
	}
	for channel := range have {
		if !f.wanted[channel] {
			delete(have, channel)
			delete(f.live, channel)
			remove = append(remove, channel)
		}
	}
	return add, remove, restart
}

// pump hands on what arrives until the subscription is closed.
func (f *feed) pump(events <-chan any, pumped chan<- struct{}) {
	defer close(pumped)
	for event := range events {
		switch e := event.(type) {
		case *redis.Subscription:
			switch e.Kind {
			case "subscribe", "ssubscribe":
				f.hub.confirmed(f, e.Channel)
			case "sunsubscribe":
				f.hub.lost(f)
			}
		case *redis.Message:
			v, err := strconv.Atoi(e.Payload)
			if err != nil {
				v = 1 // no number of Redisson's, yet a reason to look
			}
			f.hub.message(e.Channel, v)
		}
	}
}
