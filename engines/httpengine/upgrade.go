package httpengine

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"sema/engine"
	"sema/internal/protocol"
	"sema/internal/wire"
)

// connPool has upgraded connections, which carry calls without the overhead of HTTP. If
// a proxy before the server does not support them, calls are plain HTTP requests.
type connPool struct {
	url   *url.URL
	token string
	tls   *tls.Config // nil: no TLS
	dial  func(ctx context.Context, network, address string) (net.Conn, error)

	mu     sync.Mutex
	idle   []*upgradedConn // in the order of their last use
	never  bool            // upgrades do not work
	closed bool
}

// upgradedConn is an upgraded connection. It carries one call at a time.
type upgradedConn struct {
	net.Conn
	in    *bufio.Reader
	used  time.Time
	until time.Time // the connection's deadline
}

const (
	// connIdle is how long an idle connection is kept. A server closes it later.
	connIdle = time.Minute

	// callTime bounds a call if its context has no deadline.
	callTime = 15 * time.Second

	maxIdle = 64
)

var errNoUpgrade = errors.New("the server's connections cannot be upgraded")

// take returns an idle connection to the server, or opens one.
func (l *connPool) take(ctx context.Context) (*upgradedConn, *engine.Error) {
	l.mu.Lock()
	if l.never {
		l.mu.Unlock()
		return nil, &engine.Error{NotExecuted: true, Err: errNoUpgrade}
	}
	for n := len(l.idle); n > 0; n = len(l.idle) {
		c := l.idle[n-1]
		l.idle = l.idle[:n-1]
		if time.Since(c.used) < connIdle {
			l.mu.Unlock()
			return c, nil
		}
		_ = c.Close()
	}
	l.mu.Unlock()
	return l.open(ctx)
}

// put returns a working connection to the pool.
func (l *connPool) put(c *upgradedConn) {
	c.used = time.Now()
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed || len(l.idle) >= maxIdle {
		_ = c.Close()
		return
	}
	l.idle = append(l.idle, c)
}

func (l *connPool) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
	for _, c := range l.idle {
		_ = c.Close()
	}
	l.idle = nil
}

// open opens and upgrades a connection.
func (l *connPool) open(ctx context.Context) (*upgradedConn, *engine.Error) {
	ctx, cancel := context.WithTimeout(ctx, dialTime)
	defer cancel()
	fail := func(err error) (*upgradedConn, *engine.Error) {
		failure := noAnswer("", "", err)
		failure.NotExecuted = true // no call was sent yet
		return nil, failure
	}
	address := l.url.Host
	if l.url.Port() == "" {
		address = net.JoinHostPort(l.url.Hostname(), l.url.Scheme) // a port may be named by the scheme
	}
	raw, err := l.dial(ctx, "tcp", address)
	if err != nil {
		return fail(err)
	}
	made := false
	defer func() {
		if !made {
			_ = raw.Close()
		}
	}()
	defer context.AfterFunc(ctx, func() { _ = raw.SetDeadline(time.Now()) })()
	c := raw
	if l.tls != nil {
		c = tls.Client(raw, l.tls) // the first write starts the handshake
	}
	head := "GET " + l.url.EscapedPath() + "/v1/engine/calls HTTP/1.1\r\nHost: " + l.url.Host + "\r\nConnection: Upgrade\r\nUpgrade: " + wire.Upgrade + "\r\n"
	if l.token != "" {
		head += "Authorization: Bearer " + l.token + "\r\n"
	}
	if _, err := io.WriteString(c, head+"\r\n"); err != nil {
		return fail(err)
	}
	in := bufio.NewReader(c)
	answer, err := http.ReadResponse(in, nil)
	if err != nil {
		return fail(err)
	}
	if answer.StatusCode == http.StatusSwitchingProtocols && strings.EqualFold(answer.Header.Get("Upgrade"), wire.Upgrade) {
		made = true
		return &upgradedConn{Conn: c, in: in}, nil
	}
	body, err := io.ReadAll(io.LimitReader(answer.Body, 64<<10))
	_ = answer.Body.Close()
	if err != nil {
		return fail(err)
	}
	failure := refused("", "", answer, body)
	failure.NotExecuted = true
	switch answer.StatusCode {
	case http.StatusUnauthorized, http.StatusForbidden, http.StatusTooManyRequests, http.StatusServiceUnavailable, http.StatusBadGateway, http.StatusGatewayTimeout:
		return nil, failure
	}
	l.mu.Lock()
	l.never = true
	l.mu.Unlock()
	return nil, &engine.Error{NotExecuted: true, Err: errNoUpgrade}
}

// call sends a call and reads the encoded reply into buffer.
func (l *connPool) call(ctx context.Context, body, buffer []byte) ([]byte, *engine.Error) {
	c, failure := l.take(ctx)
	if failure != nil {
		return nil, failure
	}
	until, ok := ctx.Deadline()
	if !ok {
		until = time.Now().Add(callTime)
	}
	if until != c.until { // calls share contexts
		c.until = until
		_ = c.SetDeadline(until)
	}
	stop := func() bool { return true }
	if _, timed := ctx.(*protocol.Timed); !timed {
		stop = context.AfterFunc(ctx, func() { _ = c.SetDeadline(time.Now()) })
	}
	answer, err := c.exchange(body, buffer)
	if !stop() || err != nil { // the end of ctx may still change the deadline, or the connection is broken
		_ = c.Close()
	} else {
		l.put(c)
	}
	if err != nil {
		if ctx.Err() != nil {
			err = ctx.Err()
		}
		return nil, noAnswer("", "", err)
	}
	if answer[0] == wire.KindProblem {
		return nil, refused("", "", &http.Response{Status: "a problem that cannot be decoded"}, answer[1:])
	}
	return answer, nil
}

// exchange sends the message after wire.Room bytes of body, and reads the answer.
func (c *upgradedConn) exchange(body, buffer []byte) ([]byte, error) {
	if _, err := c.Write(wire.WithLength(body)); err != nil {
		return nil, err
	}
	size, err := binary.ReadUvarint(c.in)
	if err != nil {
		return nil, err
	}
	if size == 0 || size > maxAnswer {
		return nil, fmt.Errorf("%w of %d bytes", wire.ErrMalformed, size)
	}
	if uint64(cap(buffer)) < size {
		buffer = make([]byte, size)
	}
	answer := buffer[:size]
	_, err = io.ReadFull(c.in, answer)
	return answer, err
}
