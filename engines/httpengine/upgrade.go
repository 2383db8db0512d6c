package httpengine

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
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
	mu     sync.Mutex
	idle   []*upgradedConn // in the order of their last use
	never  bool            // upgrades do not work
	closed bool
}

// upgradedConn is an upgraded connection. It carries one call at a time.
type upgradedConn struct {
	io.WriteCloser
	in    *bufio.Reader
	conn  net.Conn // for its deadline
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

// take returns an idle connection, or nil.
func (l *connPool) take() (c *upgradedConn, never bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for n := len(l.idle); n > 0; n = len(l.idle) {
		c := l.idle[n-1]
		l.idle = l.idle[:n-1]
		if time.Since(c.used) < connIdle {
			return c, false
		}
		_ = c.Close()
	}
	return nil, l.never
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

// upgrade opens and upgrades a connection. Each failure says that no call was sent yet.
func (e *Engine) upgrade(ctx context.Context) (*upgradedConn, *engine.Error) {
	ctx, cancel := context.WithTimeout(ctx, dialTime)
	defer cancel() // an upgraded connection outlives ctx
	var conn net.Conn
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotConn: func(g httptrace.GotConnInfo) { conn = g.Conn }})
	r, err := e.request(ctx, http.MethodGet, "/v1/engine/calls", nil)
	if err != nil {
		return nil, notExecuted("", "", err)
	}
	r.Header.Set("Connection", "Upgrade")
	r.Header.Set("Upgrade", wire.Upgrade)
	fail := func(failure *engine.Error) (*upgradedConn, *engine.Error) {
		failure.NotExecuted = true
		return nil, failure
	}
	answer, err := e.client.Do(r)
	if err != nil {
		return fail(noAnswer("", "", err))
	}
	both, writable := answer.Body.(io.ReadWriteCloser)
	if writable && strings.EqualFold(answer.Header.Get("Upgrade"), wire.Upgrade) {
		return &upgradedConn{WriteCloser: both, in: bufio.NewReader(both), conn: conn}, nil
	}
	body, err := io.ReadAll(io.LimitReader(answer.Body, 64<<10))
	_ = answer.Body.Close()
	if err != nil {
		return fail(noAnswer("", "", err))
	}
	switch answer.StatusCode {
	case http.StatusUnauthorized, http.StatusForbidden, http.StatusTooManyRequests, http.StatusServiceUnavailable, http.StatusBadGateway, http.StatusGatewayTimeout:
		return fail(refused("", "", answer, body))
	}
	e.upgraded.mu.Lock()
	e.upgraded.never = true
	e.upgraded.mu.Unlock()
	return nil, notExecuted("", "", errNoUpgrade)
}

// call sends a call and reads the encoded reply into buffer.
func (e *Engine) call(ctx context.Context, body, buffer []byte) ([]byte, *engine.Error) {
	c, never := e.upgraded.take()
	if never {
		return nil, notExecuted("", "", errNoUpgrade)
	}
	if c == nil {
		var failure *engine.Error
		if c, failure = e.upgrade(ctx); failure != nil {
			return nil, failure
		}
	}
	until, ok := ctx.Deadline()
	if !ok {
		until = time.Now().Add(callTime)
	}
	if until != c.until { // calls share contexts
		c.until = until
		_ = c.conn.SetDeadline(until)
	}
	stop := func() bool { return true }
	if _, timed := ctx.(*protocol.Timed); !timed {
		stop = context.AfterFunc(ctx, func() { _ = c.conn.SetDeadline(time.Now()) })
	}
	answer, err := c.exchange(body, buffer)
	if !stop() || err != nil { // the end of ctx may still change the deadline, or the connection is broken
		_ = c.Close()
	} else {
		e.upgraded.put(c)
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
