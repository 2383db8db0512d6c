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
	"sema/internal/wire"
)

// lines are connections that carry calls without the rest of HTTP around each.
// Where something between us and the server does not let them through, calls
// are requests of their own.
type lines struct {
	url   *url.URL
	token string
	tls   *tls.Config // nil: without
	dial  func(ctx context.Context, network, address string) (net.Conn, error)

	mu     sync.Mutex
	idle   []*line // the one used last at the end
	never  bool    // they do not get through
	closed bool
}

// line is one such connection. It carries one call at a time.
type line struct {
	net.Conn
	in    *bufio.Reader
	used  time.Time
	until time.Time // the connection's deadline
}

const (
	// lineIdle is less than a server leaves a line without a call.
	lineIdle = time.Minute

	// lineTime bounds a call whose context does not.
	lineTime = 15 * time.Second

	maxIdle = 64
)

var errNoLine = errors.New("calls have to be requests of their own")

// take is a line to the server, an idle one if there is any.
func (l *lines) take(ctx context.Context) (*line, *engine.Error) {
	l.mu.Lock()
	if l.never {
		l.mu.Unlock()
		return nil, &engine.Error{NotExecuted: true, Err: errNoLine}
	}
	for n := len(l.idle); n > 0; n = len(l.idle) {
		c := l.idle[n-1]
		l.idle = l.idle[:n-1]
		if time.Since(c.used) < lineIdle {
			l.mu.Unlock()
			return c, nil
		}
		_ = c.Close()
	}
	l.mu.Unlock()
	return l.open(ctx)
}

// put gives back a line that is in order.
func (l *lines) put(c *line) {
	c.used = time.Now()
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed || len(l.idle) >= maxIdle {
		_ = c.Close()
		return
	}
	l.idle = append(l.idle, c)
}

func (l *lines) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
	for _, c := range l.idle {
		_ = c.Close()
	}
	l.idle = nil
}

// open makes a line.
func (l *lines) open(ctx context.Context) (*line, *engine.Error) {
	ctx, cancel := context.WithTimeout(ctx, dialTime)
	defer cancel()
	fail := func(err error) (*line, *engine.Error) {
		failure := unreached("", "", err)
		failure.NotExecuted = true // nothing was asked yet
		return nil, failure
	}
	address := l.url.Host
	if l.url.Port() == "" {
		address = net.JoinHostPort(l.url.Hostname(), l.url.Scheme) // the port has the scheme's name
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
		c = tls.Client(raw, l.tls) // the first write begins the handshake
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
		return &line{Conn: c, in: in}, nil
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
	return nil, &engine.Error{NotExecuted: true, Err: errNoLine}
}

// call carries a call, and reads the reply's bytes into buffer.
func (l *lines) call(ctx context.Context, body, buffer []byte) ([]byte, *engine.Error) {
	c, failure := l.take(ctx)
	if failure != nil {
		return nil, failure
	}
	until, ok := ctx.Deadline()
	if !ok {
		until = time.Now().Add(lineTime)
	}
	if until != c.until { // calls share contexts
		c.until = until
		_ = c.SetDeadline(until)
	}
	stop := func() bool { return true }
	if _, timed := ctx.(*engine.Timed); !timed {
		stop = context.AfterFunc(ctx, func() { _ = c.SetDeadline(time.Now()) })
	}
	answer, err := c.exchange(body, buffer)
	if !stop() || err != nil { // its deadline may be changed any moment, or it is not in order
		_ = c.Close()
	} else {
		l.put(c)
	}
	if err != nil {
		if ctx.Err() != nil {
			err = ctx.Err()
		}
		return nil, unreached("", "", err)
	}
	if answer[0] == wire.KindProblem {
		return nil, refused("", "", &http.Response{Status: "a problem that is not understood"}, answer[1:])
	}
	return answer, nil
}

// exchange sends a message and reads the one that answers it.
func (c *line) exchange(body, buffer []byte) ([]byte, error) {
	var length [binary.MaxVarintLen64]byte
	n := binary.PutUvarint(length[:], uint64(len(body)-binary.MaxVarintLen64))
	start := binary.MaxVarintLen64 - n
	copy(body[start:], length[:n])
	if _, err := c.Write(body[start:]); err != nil {
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
