package semahttp

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"runtime"
	"sync/atomic"

	"sema/admit"
)

// response is the http.ResponseWriter of a request that is served. Its status marks the
// permit.
type response struct {
	http.ResponseWriter
	pass      *pass
	bad       func(status int) bool
	abandoned func() // tells the observer; may be nil
	hijacked  atomic.Bool
}

// as returns the response with those abilities of the server's that it may have: a
// connection can be hijacked, and one that cannot, as of HTTP/2, pushes.
func (o *response) as() http.ResponseWriter {
	flusher, flushes := o.ResponseWriter.(http.Flusher)
	from, reads := o.ResponseWriter.(io.ReaderFrom)
	pusher, pushes := o.ResponseWriter.(http.Pusher)
	own, hijacks := hijacker{o}, canHijack(o.ResponseWriter)
	switch {
	case hijacks && flushes && reads:
		return struct {
			hijacker
			http.Flusher
			io.ReaderFrom
		}{own, flusher, from}
	case hijacks && flushes:
		return struct {
			hijacker
			http.Flusher
		}{own, flusher}
	case hijacks && reads:
		return struct {
			hijacker
			io.ReaderFrom
		}{own, from}
	case hijacks:
		return own
	case flushes && pushes:
		return struct {
			*response
			http.Flusher
			http.Pusher
		}{o, flusher, pusher}
	case flushes:
		return struct {
			*response
			http.Flusher
		}{o, flusher}
	}
	return o
}

// WriteHeader implements http.ResponseWriter.
func (o *response) WriteHeader(status int) {
	if o.bad(status) {
		admit.Overloaded(o.pass.permit)
	}
	o.ResponseWriter.WriteHeader(status)
}

// Unwrap is for http.ResponseController.
func (o *response) Unwrap() http.ResponseWriter { return o.ResponseWriter }

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

type hijacker struct{ *response }

// Hijack implements http.Hijacker. The connection has the permit from now on: it closes
// when the permit is lost, or when it is garbage-collected. The request's context does
// not count, because it ends when the handler returns.
func (o hijacker) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	inner, rw, err := http.NewResponseController(o.ResponseWriter).Hijack()
	if err != nil {
		return inner, rw, err
	}
	o.hijacked.Store(true)
	c := &conn{inner, &ending{pass: o.pass, close: inner.Close, abandoned: o.abandoned}}
	watch(c.ending, o.pass.context(context.Background()), c)
	if rw != nil && rw.Writer.Buffered() == 0 {
		rw.Writer.Reset(c) // a handler that uses only rw has the connection, too
	}
	return c, rw, nil
}

// conn is a connection as the handler has it.
type conn struct {
	net.Conn
	ending *ending
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
		if over := c.ending.pass.over(); over != nil {
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
	return c.ending.end(false)
}
