package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"

	"sema/internal/fixture/child"
)

// relayed is the yardstick for servers in between: a server that only passes data on.
const relayed = "noop-relay"

// relay is a process that passes data between its clients and an address, in both
// directions. It prints its own address.
func relay(to string) error {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	fmt.Println(l.Addr())
	for {
		from, err := l.Accept()
		if err != nil {
			return err
		}
		up, err := net.Dial("tcp", to)
		if err != nil {
			return err
		}
		go passOn(up, from)
		go passOn(from, up)
	}
}

// passOn does not use io.Copy, because there the kernel moves the data: a real server
// has to read it.
func passOn(to, from net.Conn) {
	defer func() { _, _ = to.Close(), from.Close() }()
	b := make([]byte, 16<<10)
	for {
		n, err := from.Read(b)
		if err != nil {
			return
		}
		if _, err := to.Write(b[:n]); err != nil {
			return
		}
	}
}

// startRelay starts a relay to a Redis, in a process of its own. The URL is that of the Redis
// by way of it.
func startRelay(ctx context.Context, redisURL string) (by string, stop func(), err error) {
	u, err := url.Parse(redisURL)
	if err != nil || u.Scheme != "redis" {
		return "", nil, errors.New("only redis:// can be relayed")
	}
	to := u.Host
	if u.Port() == "" {
		to = net.JoinHostPort(u.Hostname(), "6379")
	}
	cmd, err := child.Command(relayed, to)
	if err != nil {
		return "", nil, err
	}
	p, err := child.Start(cmd)
	if err != nil {
		return "", nil, err
	}
	if u.Host, err = p.Line(ctx); err != nil {
		p.Kill()
		return "", nil, fmt.Errorf("the relay did not start: %w", err)
	}
	return u.String(), p.Kill, nil
}
