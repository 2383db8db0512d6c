// Package redissub listens to channels of a Redis, for package redisengine and
// package redisson.
package redissub

import (
	"context"
	"errors"
	"maps"
	"math/rand/v2"
	"net"
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

	// reconnectPause is the time before a first attempt to connect again. It
	// doubles up to longestPause, give or take a half: a thousand processes whose
	// server comes back shall not all be there at once.
	reconnectPause = 100 * time.Millisecond
	longestPause   = 250 * time.Millisecond
)

// Node is where channels live.
type Node struct {
	// Sharded: channels of a slot, for SSUBSCRIBE and SPUBLISH.
	Sharded bool

	// Open makes a connection for subscriptions, without any. It is called again
	// whenever a connection has failed.
	Open func(context.Context) *redis.PubSub
}

// Subscriber is a connection for subscriptions, which is made again whenever it
// fails. That is not left to go-redis. It subscribes again to all channels in one
// command, which a cluster refuses when they are of several slots; its health
// check takes a connection that swallows everything for a good one; and it does
// not tell what may have been missed in between.
//
// Whatever waits for the network happens in the Subscriber's own goroutines: no
// method waits.
type Subscriber struct {
	node   Node
	events Events
	done   chan struct{} // closed when all is over
	quit   context.CancelFunc
	change chan struct{} // has a word when want has changed

	mu    sync.Mutex
	want  map[string]uint64 // channels, and which asking for them it is
	asked uint64
	cut   context.CancelFunc // ends the connection of now
	since time.Time          // when that was begun
	heard map[string]bool    // channels that were confirmed on it
}

// Events are told what a Subscriber has to say, in order, from its own
// goroutines.
type Events interface {
	// Confirmed: from now on the server tells what is published on a channel.
	// What was published since an earlier connection ended is lost.
	Confirmed(on *Subscriber, channel string)

	// Message: something was published on a channel.
	Message(channel, payload string)

	// Refused: the server refuses a subscription. It does not say which.
	Refused(on *Subscriber, err error)

	// Ended: a channel's slot has gone to another node.
	Ended(on *Subscriber, channel string)
}

// New makes a Subscriber, which connects when a channel is wanted, until Quit.
func New(n Node, e Events) *Subscriber {
	ctx, quit := context.WithCancel(context.Background())
	s := &Subscriber{
		node: n, events: e, quit: quit, done: make(chan struct{}), change: make(chan struct{}, 1), want: map[string]uint64{},
	}
	go s.run(ctx)
	return s
}

// Quit ends all. Events may still be told until Done.
func (s *Subscriber) Quit() { s.quit() }

// Done is closed when all is over after Quit.
func (s *Subscriber) Done() <-chan struct{} { return s.done }

// Set says whether a channel is wanted. The server is asked again for one that
// it has refused.
func (s *Subscriber) Set(channel string, wanted bool) {
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

// Reconnect replaces the connection, unless it is younger than age.
func (s *Subscriber) Reconnect(age time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.cut != nil && time.Since(s.since) >= age {
		s.cut()
	}
}

// run keeps a connection until quit.
func (s *Subscriber) run(ctx context.Context) {
	defer close(s.done)
	pause := reconnectPause
	for ctx.Err() == nil {
		if len(s.wanted()) == 0 {
			s.await(ctx)
			continue
		}
		p := s.node.Open(ctx)
		worked := make(chan bool, 1)
		connected, lost := context.WithCancel(ctx)
		s.mu.Lock()
		s.cut, s.since, s.heard = lost, time.Now(), map[string]bool{}
		s.mu.Unlock()
		have := map[string]uint64{}
		if s.adjust(connected, p, have) {
			go func() {
				defer lost()
				worked <- s.receive(p)
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

// await waits for a change of the wanted channels, at most until ctx ends.
func (s *Subscriber) await(ctx context.Context) bool {
	select {
	case <-s.change:
		return true
	case <-ctx.Done():
		return false
	}
}

func (s *Subscriber) wanted() map[string]uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.want)
}

// adjust subscribes and unsubscribes until have equals the wanted channels,
// with one command for each.
func (s *Subscriber) adjust(ctx context.Context, p *redis.PubSub, have map[string]uint64) bool {
	want := s.wanted()
	subscribe, unsubscribe := p.Subscribe, p.Unsubscribe
	if s.node.Sharded {
		subscribe, unsubscribe = p.SSubscribe, p.SUnsubscribe
	}
	ctx, cancel := context.WithTimeout(ctx, subscribeWait)
	defer cancel()
	for channel, asked := range want {
		if have[channel] == asked {
			continue
		}
		s.setHeard(channel, false) // if it was, that is in doubt
		if subscribe(ctx, channel) != nil {
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

func (s *Subscriber) setHeard(channel string, heard bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.heard[channel] = heard
}

// unheard is the channels that are not confirmed on the connection of now: a refusal
// does not say which one it means.
func (s *Subscriber) unheard() (list []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for channel := range s.want {
		if !s.heard[channel] {
			list = append(list, channel)
		}
	}
	return list
}

// over has ended. With it a PubSub uses the connection that it has, and makes no
// other one when that has failed. The other one would listen to the same channels
// for a moment, and the server would take the client for reachable until run has
// closed it.
var over = func() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}()

// receive passes on what the connection brings until it fails, and reports
// whether it brought anything.
func (s *Subscriber) receive(p *redis.PubSub) (worked bool) {
	probed := false
	for {
		item, err := p.ReceiveTimeout(over, healthCheck)
		switch {
		case err == nil:
			worked, probed = true, false
		case rediserror.FromServer(err) && strings.HasPrefix(err.Error(), "MOVED"):
			for _, channel := range s.unheard() {
				s.events.Ended(s, channel)
			}
		case rediserror.FromServer(err):
			s.events.Refused(s, err)
			if !worked {
				return false // a refused login repeats itself
			}
		case isTimeout(err) && !probed:
			probed = true
			if p.Ping(over) != nil {
				return worked
			}
		default:
			return worked
		}
		switch m := item.(type) {
		case *redis.Subscription:
			switch m.Kind {
			case "subscribe", "ssubscribe":
				s.setHeard(m.Channel, true)
				s.events.Confirmed(s, m.Channel)
			case "sunsubscribe":
				s.events.Ended(s, m.Channel)
			}
		case *redis.Message:
			s.events.Message(m.Channel, m.Payload)
		}
	}
}

func isTimeout(err error) bool {
	var network net.Error
	return errors.As(err, &network) && network.Timeout()
}
