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

// conns is a listener with at most so many connections open at a time. A new one
// takes the place of the one that has worked for nobody for the longest: it has sent
// no request yet, or half of one, or one without a right. So a caller without a right
// keeps nobody out. While all work, the new one waits.
type conns struct {
	net.Listener
	most    int
	changed chan struct{} // a place may have come free
	done    chan struct{}
	end     func() // closes done

	mu   sync.Mutex
	open int
	idle list.List // of *conn: those that work for nobody, the longest first
}

// conn is one connection of conns.
type conn struct {
	net.Conn
	of     *conns
	work   int           // requests that it works for; guarded by of.mu, like the rest
	place  *list.Element // among the idle
	closed bool
}

func limitConns(l net.Listener, most int) *conns {
	done := make(chan struct{})
	return &conns{Listener: l, most: most, changed: make(chan struct{}, 1), done: done, end: sync.OnceFunc(func() { close(done) })}
}

// Accept implements net.Listener.
func (l *conns) Accept() (net.Conn, error) {
	raw, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	c := &conn{Conn: raw, of: l}
	for {
		l.mu.Lock()
		if l.open < l.most {
			l.open++
			c.place = l.idle.PushBack(c)
			l.mu.Unlock()
			return c, nil
		}
		oldest := l.idle.Front()
		l.mu.Unlock()
		if oldest != nil {
			_ = oldest.Value.(*conn).Close()
			continue
		}
		select {
		case <-l.changed:
		case <-l.done:
			_ = raw.Close()
			return nil, net.ErrClosed
		}
	}
}

// Close implements net.Listener.
func (l *conns) Close() error {
	l.end()
	return l.Listener.Close()
}

// freed says that a place may have come free. The lock is held.
func (l *conns) freed() {
	select {
	case l.changed <- struct{}{}:
	default:
	}
}

// Close implements net.Conn.
func (c *conn) Close() error {
	l := c.of
	l.mu.Lock()
	if !c.closed {
		c.closed = true
		l.open--
		c.rest()
		l.freed()
	}
	l.mu.Unlock()
	return c.Conn.Close()
}

// rest takes the connection out of the idle. The lock is held.
func (c *conn) rest() {
	if c.place != nil {
		c.of.idle.Remove(c.place)
		c.place = nil
	}
}

// turn is a request's use of its connection. The nil turn is that of a request of no
// connection of ours.
type turn struct {
	c     *conn
	begun bool
}

// beginWith is begin once the request's body has come to its end.
func (t *turn) beginWith(body io.ReadCloser) {
	if u, ok := body.(*unhurried); ok {
		u.whole = t.begin
		return
	}
	t.begin()
}

// begin says that the connection works: the request has its right, and is complete.
func (t *turn) begin() {
	if t == nil || t.begun {
		return
	}
	t.begun = true
	l := t.c.of
	l.mu.Lock()
	defer l.mu.Unlock()
	t.c.work++
	t.c.rest()
}

// end says that the request is answered.
func (t *turn) end() {
	if t == nil || !t.begun {
		return
	}
	l := t.c.of
	l.mu.Lock()
	defer l.mu.Unlock()
	if t.c.work--; t.c.work == 0 && !t.c.closed {
		t.c.place = l.idle.PushBack(t.c)
		l.freed()
	}
}

// connKey is that of a request's *conn in its context.
type connKey struct{}

// withConn is for http.Server.ConnContext.
func withConn(ctx context.Context, c net.Conn) context.Context {
	if secure, ok := c.(*tls.Conn); ok {
		c = secure.NetConn()
	}
	return context.WithValue(ctx, connKey{}, c)
}

// connOf is the connection of a request; nil: none of ours.
func connOf(r *http.Request) *conn {
	c, _ := r.Context().Value(connKey{}).(*conn)
	return c
}

// turnOf is a request's turn.
func turnOf(r *http.Request) *turn {
	if c := connOf(r); c != nil {
		return &turn{c: c}
	}
	return nil
}

// defaultConns is how many connections there are if nobody says: fewer than the
// system has files for this process, as the engine needs some, too.
func defaultConns() int {
	const usual = 30_000
	return max(1, min(usual, cmp.Or(openFiles(), usual*2)*3/4))
}
