package measure

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"time"

	"github.com/redis/go-redis/v9"
)

// message passes a token between two workers by the fastest message that there
// is beside the store: published by Redis; else through a socket between two
// processes, or a channel within one.
func (s Store) message(ctx context.Context, o Setup) (Gate, error) {
	inbox := [2]chan struct{}{make(chan struct{}, 1), make(chan struct{}, 1)}
	if o.Process == 0 {
		inbox[0] <- struct{}{}
	}
	send := func(_ context.Context, to int) error { inbox[to] <- struct{}{}; return nil }
	var closing func() error
	var err error
	if o.Workers == 1 { // the other one is another process
		if s.Redis != nil {
			send, closing, err = s.published(ctx, o, inbox[o.Process])
		} else {
			send, closing, err = socket(ctx, o, inbox[o.Process])
		}
	}
	return Gate{Close: closing, Work: func(ctx context.Context, worker int, held func()) error {
		me := o.Process + worker
		if err := pass(ctx, nil, inbox[me], nil); err != nil {
			return err
		}
		held()
		return send(context.WithoutCancel(ctx), 1-me)
	}}, err
}

// published passes the token by PUBLISH, as the Redis engine does its news.
func (s Store) published(ctx context.Context, o Setup, inbox chan<- struct{}) (send func(context.Context, int) error, closing func() error, err error) {
	name := func(who int) string { return fmt.Sprintf("{%s}:%d", o.Name, who) }
	subscribe := s.Redis.Subscribe
	if _, ok := s.Redis.(*redis.ClusterClient); ok {
		subscribe = s.Redis.SSubscribe
	}
	sub := subscribe(ctx, name(o.Process))
	if _, err := sub.Receive(ctx); err != nil { // the confirmation
		return nil, sub.Close, fmt.Errorf("subscribe: %w", err)
	}
	go func() { // ends with sub
		for range sub.Channel() {
			inbox <- struct{}{}
		}
	}()
	return func(ctx context.Context, to int) error {
		if _, ok := s.Redis.(*redis.ClusterClient); ok {
			return s.Redis.SPublish(ctx, name(to), "").Err()
		}
		return s.Redis.Publish(ctx, name(to), "").Err()
	}, sub.Close, nil
}

// socket passes the token through a socket of the file system.
func socket(ctx context.Context, o Setup, inbox chan<- struct{}) (send func(context.Context, int) error, closing func() error, err error) {
	path := filepath.Join(os.TempDir(), o.Name+".sock")
	var conn net.Conn
	if o.Process == 0 {
		l, err := net.Listen("unix", path)
		if err != nil {
			return nil, nil, err
		}
		defer func() { _ = l.Close() }()
		defer context.AfterFunc(ctx, func() { _ = l.Close() })()
		if conn, err = l.Accept(); err != nil {
			return nil, nil, err
		}
	} else {
		for conn == nil {
			if conn, err = net.Dial("unix", path); err != nil && sleep(ctx, 5*time.Millisecond) != nil {
				return nil, nil, err
			}
		}
	}
	go func() { // ends with conn
		for one := make([]byte, 1); ; inbox <- struct{}{} {
			if _, err := conn.Read(one); err != nil {
				return
			}
		}
	}()
	return func(context.Context, int) error { _, err := conn.Write([]byte{1}); return err }, conn.Close, nil
}
