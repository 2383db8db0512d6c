package semahttp

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"runtime"
	"sync/atomic"
)

// hold is what a request that is served holds.
type hold struct {
	pass      *pass
	abandoned func() // tells the observer; may be nil
	hijacked  atomic.Bool
}

// wrap gives w's Hijack to the hold, has the status mark the permit, and leaves all
// else as it is.
func (h *Handler) wrap(w http.ResponseWriter, of *hold) http.ResponseWriter {
	marked := h.mark(w, of.pass)
	if !canHijack(w) {
		return marked
	}
	own := &writer{marked, of}
	flusher, flushes := w.(http.Flusher)
	from, reads := w.(io.ReaderFrom)
	switch {
	case flushes && reads:
		return struct {
			*writer
			http.Flusher
			io.ReaderFrom
		}{own, flusher, from}
	case flushes:
		return struct {
			*writer
			http.Flusher
		}{own, flusher}
	case reads:
		return struct {
			*writer
			io.ReaderFrom
		}{own, from}
	}
	return own
}

// canHijack looks for Hijack as http.ResponseController does.
func canHijack(w http.ResponseWriter) bool {
	for {
		if _, ok := w.(http.Hijacker); ok {
			return true
		}
		u, ok := w.(interface{ Unwrap() http.ResponseWriter })
		if !ok {
			return false
		}
		w = u.Unwrap()
	}
}

type writer struct {
	http.ResponseWriter
	hold *hold
}

// Unwrap is for http.ResponseController.
func (w *writer) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// Hijack implements http.Hijacker. The connection has the permit from now on.
func (w *writer) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	inner, rw, err := http.NewResponseController(w.ResponseWriter).Hijack()
	if err != nil {
		return inner, rw, err
	}
	w.hold.hijacked.Store(true)
	t := &takeover{inner: inner, hold: w.hold}
	c := &conn{inner, t}
	t.start(c)
	if rw != nil && rw.Writer.Buffered() == 0 {
		rw.Writer.Reset(c) // a handler that uses only rw has the connection, too
	}
	return c, rw, nil
}

// takeover is a connection that a handler took over, and what it holds. The
// handler has it through a conn only, so that the garbage collector can tell
// when it was dropped.
type takeover struct {
	inner  net.Conn
	hold   *hold
	ending ending
}

// start makes the connection close when the permit is lost or c is
// garbage-collected. The request's context does not count, because it ends when
// the handler returns.
func (t *takeover) start(c *conn) {
	watch(&t.ending, t.hold.pass.context(context.Background()), c, t.end)
}

// end closes the connection and then gives back the permit. found says that the
// garbage collector found it.
func (t *takeover) end(found bool) error {
	return t.ending.do(found, t.inner.Close, t.hold.pass, t.hold.abandoned)
}

// conn is a connection as the handler has it.
type conn struct {
	net.Conn
	takeover *takeover
}

// Read says of a loss of the permit that it was one.
func (c *conn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	return n, c.reason(err)
}

// Write says of a loss of the permit that it was one.
func (c *conn) Write(p []byte) (int, error) {
	n, err := c.Conn.Write(p)
	return n, c.reason(err)
}

func (c *conn) reason(err error) error {
	defer runtime.KeepAlive(c)
	if err != nil && err != io.EOF {
		if over := c.takeover.hold.pass.over(); over != nil {
			return over
		}
	}
	return err
}

// CloseWrite closes one half of the connection, if it can.
func (c *conn) CloseWrite() error {
	defer runtime.KeepAlive(c)
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return http.ErrNotSupported
}

// NetConn is the connection beneath, as (*tls.Conn).NetConn is.
func (c *conn) NetConn() net.Conn { return c.Conn }

// Close closes the connection and gives back the permit.
func (c *conn) Close() error {
	defer runtime.KeepAlive(c)
	return c.takeover.end(false)
}
