package redisengine

import (
	"context"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// line is a subscribed connection that is made again whenever it fails. That is
// done here and not left to go-redis, which subscribes again to all channels in
// one command, which a cluster refuses when they are of several slots; and
// whose health check looks at writing alone, so that it takes a connection that
// swallows everything for a good one.
type line struct {
	addr   string
	shards bool
	open   func() *redis.PubSub

	// Guarded by the inbox's lock.
	pubsub  *redis.PubSub // nil: not connected
	retired bool
}

func (l *line) subscribe(ctx context.Context, p *redis.PubSub, channel string) error {
	if l.shards {
		return p.SSubscribe(ctx, channel)
	}
	return p.Subscribe(ctx, channel)
}

func (l *line) unsubscribe(ctx context.Context, p *redis.PubSub, channel string) error {
	if l.shards {
		return p.SUnsubscribe(ctx, channel)
	}
	return p.Unsubscribe(ctx, channel)
}

// read keeps the line connected, and passes on what it brings, until it is
// retired or the inbox closed.
func (b *inbox) read(l *line) {
	for {
		p := l.open()
		b.mu.Lock()
		if b.closed || l.retired {
			b.mu.Unlock()
			_ = p.Close()
			return
		}
		l.pubsub = p
		var channels []string
		for channel, sub := range b.channels {
			if sub.line == l && !sub.gone {
				channels = append(channels, channel)
			}
		}
		b.mu.Unlock()
		if l.greet(b.ctx, p, channels) && b.receive(l, p) {
			_ = p.Close()
			continue // it worked for a while: no pause
		}
		_ = p.Close()
		select {
		case <-b.ctx.Done():
		case <-time.After(reconnectPause):
		}
	}
}

// greet subscribes to the channels, one command for each.
func (l *line) greet(ctx context.Context, p *redis.PubSub, channels []string) bool {
	ctx, cancel := context.WithTimeout(ctx, subscribeWait)
	defer cancel()
	for _, channel := range channels {
		if l.subscribe(ctx, p, channel) != nil {
			return false
		}
	}
	return true
}

// receive passes on what the connection brings until it fails, and reports
// whether it brought anything.
func (b *inbox) receive(l *line, p *redis.PubSub) (worked bool) {
	probed := false
	for {
		item, err := p.ReceiveTimeout(b.ctx, healthCheck)
		switch {
		case err == nil:
			worked, probed = true, false
		case isReply(err) && strings.HasPrefix(err.Error(), "MOVED"):
			b.moved(l, "")
		case isReply(err):
			b.refused(l, err)
			if !worked {
				return false // a refused login repeats itself
			}
		case isTimeout(err) && !probed:
			probed = true
			if p.Ping(b.ctx) != nil {
				return worked
			}
		default:
			return worked
		}
		switch m := item.(type) {
		case *redis.Subscription:
			switch m.Kind {
			case "subscribe", "ssubscribe":
				b.confirmed(l, m.Channel)
			case "sunsubscribe":
				b.moved(l, m.Channel)
			}
		case *redis.Message:
			b.message(m)
		}
	}
}
