package server

import (
	"cmp"
	"container/list"
	"context"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"sync"
)

// conns is a listener with a limited number of open connections. Above that number a new
// connection replaces the one that has been idle longest. A connection is idle if it has
// sent no request, half a request, or a request without a right. So clients without a
// right cannot lock others out. If no connection is idle, the new one waits.
type conns struct {
	net.Listener
	most int

	mu      sync.Mutex
	changed sync.Cond // a connection was closed or became idle, or the listener was closed
	open    int
	idle    list.List // of *conn, the longest idle first
	closed  bool
}

// conn is one connection of conns.
type conn struct {
	net.Conn
	pool      *conns
	inUse     int           // running requests with a right; guarded by pool.mu, like the next two
	idleEntry *list.Element // in pool.idle
	closed    bool
}

func limitConns(l net.Listener, most int) *conns {
	c := &conns{Listener: l, most: most}
	c.changed.L = &c.mu
	return c
}

// Accept implements net.Listener.
func (l *conns) Accept() (net.Conn, error) {
	raw, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	c := &conn{Conn: raw, pool: l}
	l.mu.Lock()
	defer l.mu.Unlock()
	for l.open >= l.most {
		if l.closed {
			_ = raw.Close()
			return nil, net.ErrClosed
		}
		if oldest := l.idle.Front(); oldest != nil {
			l.mu.Unlock()
			_ = oldest.Value.(*conn).Close()
			l.mu.Lock()
			continue
		}
		l.changed.Wait()
	}
	l.open++
	c.idleEntry = l.idle.PushBack(c)
	return c, nil
}

// Close implements net.Listener.
func (l *conns) Close() error {
	l.mu.Lock()
	l.closed = true
	l.changed.Broadcast()
	l.mu.Unlock()
	return l.Listener.Close()
}

// Close implements net.Conn.
func (c *conn) Close() error {
	l := c.pool
	l.mu.Lock()
	if !c.closed {
		c.closed = true
		l.open--
		c.leaveIdle()
		l.changed.Signal()
	}
	l.mu.Unlock()
	return c.Conn.Close()
}

// leaveIdle removes the connection from the idle ones. The lock is held.
func (c *conn) leaveIdle() {
	if c.idleEntry != nil {
		c.pool.idle.Remove(c.idleEntry)
		c.idleEntry = nil
	}
}

// connUse is a request's use of its connection. It is nil if the connection is not from conns.
type connUse struct {
	c     *conn
	begun bool
}

// beginWith calls begin at the end of the request's body.
func (t *connUse) beginWith(body io.ReadCloser) {
	if u, ok := body.(*deadlineBody); ok {
		u.atEnd = t.begin
		return
	}
	t.begin()
}

// begin marks the connection as used: the request is complete and has its right.
func (t *connUse) begin() {
	if t == nil || t.begun {
		return
	}
	t.begun = true
	l := t.c.pool
	l.mu.Lock()
	defer l.mu.Unlock()
	t.c.inUse++
	t.c.leaveIdle()
}

// end marks the request as answered.
func (t *connUse) end() {
	if t == nil || !t.begun {
		return
	}
	l := t.c.pool
	l.mu.Lock()
	defer l.mu.Unlock()
	if t.c.inUse--; t.c.inUse == 0 && !t.c.closed {
		t.c.idleEntry = l.idle.PushBack(t.c)
		l.changed.Signal()
	}
}

// connKey is the key of a request's *conn in its context.
type connKey struct{}

// withConn fits http.Server.ConnContext.
func withConn(ctx context.Context, c net.Conn) context.Context {
	if secure, ok := c.(*tls.Conn); ok {
		c = secure.NetConn()
	}
	return context.WithValue(ctx, connKey{}, c)
}

// connOf is the connection of a request, or nil if it is not from conns.
func connOf(r *http.Request) *conn {
	c, _ := r.Context().Value(connKey{}).(*conn)
	return c
}

// connUseOf makes the connUse of a request.
func connUseOf(r *http.Request) *connUse {
	if c := connOf(r); c != nil {
		return &connUse{c: c}
	}
	return nil
}

// defaultConns is the default of Options.MaxConns. It is less than the number of files that
// this process may open, since the engine needs some too.
func defaultConns() int {
	const usual = 30_000
	return max(1, min(usual, cmp.Or(openFiles(), usual*2)*3/4))
}
