package bench

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"sync"

	"github.com/redis/go-redis/v9"

	"sema"
)

// The words that the two processes of a hand-off exchange, one in a line.
const (
	sayReady   = "ready"   // the other process listens
	sayAcquire = "acquire" // asks it to acquire and release
	sayQueued  = "queued"  // it waits
	sayGot     = "got"     // it had the permit at that time of the clock, and released it
	sayPing    = "ping"    // the baseline without a server
	sayHeard   = "heard"   // it got the baseline's message at that time of the clock
)

// Peer is the other process of the scenario hand-off: it waits for permits of
// one semaphore and tells when it got them. It reads from in what to do and
// ends when in does; an error ends it early.
func Peer(ctx context.Context, t Target, name string, in io.Reader, out io.Writer) error {
	return peer(ctx, t, name, in, out, nil)
}

// peer is Peer; where both sides are one process, pings are the baseline's
// messages.
func peer(ctx context.Context, t Target, name string, in io.Reader, out io.Writer, pings <-chan struct{}) (err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var mu sync.Mutex // one line at a time
	say := func(words ...any) {
		mu.Lock()
		defer mu.Unlock()
		_, _ = fmt.Fprintln(out, words...) // nobody reads: then in ends as well
	}
	heard := func() {
		at := clock()
		say(sayHeard, at)
	}
	var group sync.WaitGroup
	defer group.Wait()
	defer cancel() // before the wait

	engine, err := t.Open()
	if err != nil {
		return err
	}
	defer func() { _ = engine.Close() }()
	s, err := sema.New(engine, name, 1, &sema.Options{Observer: sema.Observer{Queued: func(sema.Event) { say(sayQueued) }}})
	if err != nil {
		return err
	}
	defer func() { _ = s.Close() }()

	if t.Redis != nil {
		pubsub, err := subscribe(ctx, t.Redis, name)
		if err != nil {
			return err
		}
		defer func() { _ = pubsub.Close() }()
		group.Go(func() {
			for {
				if _, err := pubsub.ReceiveMessage(ctx); err != nil {
					return // closed; or broken, which the parent notices
				}
				heard()
			}
		})
	}
	if pings != nil {
		group.Go(func() {
			for {
				select {
				case <-pings:
					heard()
				case <-ctx.Done():
					return
				}
			}
		})
	}
	say(sayReady)
	orders := make(chan struct{}, 1)
	go func() { // ends with in
		defer cancel()
		lines := bufio.NewScanner(in)
		for lines.Scan() {
			switch lines.Text() {
			case sayPing:
				heard()
			case sayAcquire:
				orders <- struct{}{}
			}
		}
	}()
	for {
		select {
		case <-orders:
		case <-ctx.Done():
			return nil
		}
		p, err := s.Acquire(ctx)
		at := clock()
		if errors.Is(err, context.Canceled) {
			return nil
		}
		if err != nil {
			return err
		}
		if err := p.Release(); err != nil {
			return err
		}
		say(sayGot, at)
	}
}

// channelOf is where the baseline of hand-offs publishes.
func channelOf(name string) string { return keyPrefix + name + "}:ping" }

// subscribe listens the way the Redis engine does.
func subscribe(ctx context.Context, rdb redis.UniversalClient, name string) (*redis.PubSub, error) {
	open := rdb.Subscribe
	if _, ok := rdb.(*redis.ClusterClient); ok {
		open = rdb.SSubscribe
	}
	pubsub := open(ctx, channelOf(name))
	if _, err := pubsub.Receive(ctx); err != nil { // the confirmation
		_ = pubsub.Close()
		return nil, fmt.Errorf("subscribe: %w", err)
	}
	return pubsub, nil
}

func publish(ctx context.Context, rdb redis.UniversalClient, name string) error {
	if _, ok := rdb.(*redis.ClusterClient); ok {
		return rdb.SPublish(ctx, channelOf(name), "x").Err()
	}
	return rdb.Publish(ctx, channelOf(name), "x").Err()
}

// timeIn reads the clock's time after a word.
func timeIn(line, word string) (at int64, ok bool) {
	rest, ok := strings.CutPrefix(line, word+" ")
	if !ok {
		return 0, false
	}
	at, err := strconv.ParseInt(rest, 10, 64)
	return at, err == nil
}
