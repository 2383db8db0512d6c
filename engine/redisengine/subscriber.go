package redisengine

import (
	"context"
	"maps"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"sema/internal/rediserror"
)

const (
	// healthCheck is how long a subscription's connection may be silent before
	// it is probed, and how long the answer may then take. Both together are
	// less than a sixth of the default lease.
	healthCheck = 2 * time.Second

	// subscribeWait bounds one command on such a connection.
	subscribeWait = 5 * time.Second

	// settleTime is how long a new connection may take before its subscriptions
	// are expected at the server.
	settleTime = time.Second

	// reconnectPause is the time before a first attempt to connect again. It
	// doubles up to longestPause, give or take a half: a thousand processes whose
	// server comes back shall not all be there at once.
	reconnectPause = 100 * time.Millisecond
	longestPause   = 800 * time.Millisecond
)

// subscriber is a connection to one node for subscriptions, which is made again
// whenever it fails. That is not left to go-redis, which subscribes again to
// all channels in one command, which a cluster refuses when they are of several
// slots; and whose health check takes a connection that swallows everything
// for a good one.
//
// Whatever waits for the network happens in the subscriber's own goroutines.
type subscriber struct {
	node   node
	events events
	done   chan struct{} // closed when all is over
	quit   context.CancelFunc
	change chan struct{} // has a word when want has changed

	mu    sync.Mutex
	want  map[string]uint64 // channels, and which asking for them it is
	asked uint64
	cut   context.CancelFunc // ends the connection of now
	since time.Time          // when that was begun
}

// events is what a subscriber has to say, in order, from its own goroutines.
type events struct {
	confirmed func(channel string)          // the server tells from now on
	message   func(channel, payload string) // it has told
	refused   func(err error)               // it refuses a subscription; it does not say which
	ended     func(channel string)          // its slot has gone to another node; "": one not confirmed
}

func newSubscriber(n node, e events) *subscriber {
	ctx, quit := context.WithCancel(context.Background())
	s := &subscriber{
		node: n, events: e, quit: quit, done: make(chan struct{}), change: make(chan struct{}, 1), want: map[string]uint64{},
	}
	go s.run(ctx)
	return s
}

// set says whether a channel is wanted. The server is asked again for one that
// it has refused.
func (s *subscriber) set(channel string, wanted bool) {
	s.mu.Lock()
	if wanted {
		s.asked++
		s.want[channel] = s.asked
	} else {
		delete(s.want, channel)
	}
	s.mu.Unlock()
	select {
	case s.change <- struct{}{}:
	default: // it will look anyway
	}
}

// reconnect has the connection made again, unless it is new.
func (s *subscriber) reconnect() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.cut != nil && time.Since(s.since) > settleTime {
		s.cut()
	}
}

// run keeps a connection until quit.
func (s *subscriber) run(ctx context.Context) {
	defer close(s.done)
	pause := reconnectPause
	for ctx.Err() == nil {
		if len(s.wanted()) == 0 {
			s.await(ctx)
			continue
		}
		p := s.node.open(ctx)
		worked := make(chan bool, 1)
		connected, lost := context.WithCancel(ctx)
		s.mu.Lock()
		s.cut, s.since = lost, time.Now()
		s.mu.Unlock()
		have := map[string]uint64{}
		if s.adjust(connected, p, have) {
			go func() {
				defer lost()
				worked <- s.receive(connected, p)
			}()
			for s.await(connected) && s.adjust(connected, p, have) {
			}
		} else {
			worked <- false
		}
		lost()
		_ = p.Close()
		if <-worked {
			pause = reconnectPause
			continue
		}
		select {
		case <-ctx.Done():
		case <-time.After(pause/2 + rand.N(pause)):
		}
		pause = min(2*pause, longestPause)
	}
}

// await waits for a change of what is wanted; not beyond ctx.
func (s *subscriber) await(ctx context.Context) bool {
	select {
	case <-s.change:
		return true
	case <-ctx.Done():
		return false
	}
}

func (s *subscriber) wanted() map[string]uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.want)
}

// adjust makes have what is wanted, with one command for each channel.
func (s *subscriber) adjust(ctx context.Context, p *redis.PubSub, have map[string]uint64) bool {
	want := s.wanted()
	subscribe, unsubscribe := p.Subscribe, p.Unsubscribe
	if s.node.sharded {
		subscribe, unsubscribe = p.SSubscribe, p.SUnsubscribe
	}
	ctx, cancel := context.WithTimeout(ctx, subscribeWait)
	defer cancel()
	for channel, asked := range want {
		if have[channel] != asked && subscribe(ctx, channel) != nil {
			return false
		}
		have[channel] = asked
	}
	for channel := range have {
		if want[channel] == 0 {
			if unsubscribe(ctx, channel) != nil {
				return false
			}
			delete(have, channel)
		}
	}
	return true
}

// receive passes on what the connection brings until it fails, and reports
// whether it brought anything.
func (s *subscriber) receive(ctx context.Context, p *redis.PubSub) (worked bool) {
	probed := false
	for {
		item, err := p.ReceiveTimeout(ctx, healthCheck)
		switch {
		case err == nil:
			worked, probed = true, false
		case rediserror.FromServer(err) && strings.HasPrefix(err.Error(), "MOVED"):
			s.events.ended("")
		case rediserror.FromServer(err):
			s.events.refused(err)
			if !worked {
				return false // a refused login repeats itself
			}
		case isTimeout(err) && !probed:
			probed = true
			if p.Ping(ctx) != nil {
				return worked
			}
		default:
			return worked
		}
		switch m := item.(type) {
		case *redis.Subscription:
			switch m.Kind {
			case "subscribe", "ssubscribe":
				s.events.confirmed(m.Channel)
			case "sunsubscribe":
				s.events.ended(m.Channel)
			}
		case *redis.Message:
			s.events.message(m.Channel, m.Payload)
		}
	}
}
