// Package pipenet connects in memory: listeners and connections that behave like
// TCP's on the loopback, but work in bubbles of testing/synctest, in virtual time.
package pipenet

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"syscall"
)

// listening has the open listeners, by their addresses.
var listening sync.Map

// ports gives each listener and each connection a port that no other one has.
var ports atomic.Uint32

// address looks like one of the loopback, for those who take addresses apart.
// Nothing listens there.
func address() net.Addr {
	return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: int(ports.Add(1)-1)%65535 + 1}
}

// Listener is where connections are dialled to: an http.Server serves it, and an
// http.Transport has its Dial as DialContext.
type Listener struct {
	addr    net.Addr
	dialled chan net.Conn
	closed  chan struct{}
	close   func()
}

var _ net.Listener = (*Listener)(nil)

// Listen returns a listener. In a bubble, it belongs to the bubble.
func Listen() *Listener {
	l := &Listener{addr: address(), dialled: make(chan net.Conn), closed: make(chan struct{})}
	l.close = sync.OnceFunc(func() {
		listening.Delete(l.addr.String())
		close(l.closed)
	})
	listening.Store(l.addr.String(), l)
	return l
}

// Dial connects to the listener that has this address, as its own Dial does: for
// a client of several servers. It never leaves the process: with no listener there
// the connection is refused.
func Dial(ctx context.Context, network, address string) (net.Conn, error) {
	l, ok := listening.Load(address)
	if !ok {
		return nil, &net.OpError{Op: "dial", Net: network, Err: syscall.ECONNREFUSED}
	}
	return l.(*Listener).Dial(ctx, network, address)
}

// Accept returns the next connection. Once the listener is closed it fails with
// net.ErrClosed.
func (l *Listener) Accept() (net.Conn, error) {
	select {
	case c := <-l.dialled:
		return c, nil
	case <-l.closed:
		return nil, l.fail("accept", net.ErrClosed)
	}
}

// Dial connects to the listener, whatever the network and the address. It waits
// for Accept, and fails if the context ends first. Once the listener is closed
// the connection is refused.
func (l *Listener) Dial(ctx context.Context, _, _ string) (net.Conn, error) {
	near, far := pipe(address(), l.addr)
	select {
	case l.dialled <- far:
		return near, nil
	case <-l.closed:
		return nil, l.fail("dial", syscall.ECONNREFUSED)
	case <-ctx.Done():
		return nil, l.fail("dial", ctx.Err())
	}
}

// Close refuses all further connections. Those there are stay.
func (l *Listener) Close() error {
	l.close()
	return nil
}

// Addr is the listener's address. It has the form of a TCP address.
func (l *Listener) Addr() net.Addr { return l.addr }

func (l *Listener) fail(op string, err error) error {
	return &net.OpError{Op: op, Net: "tcp", Addr: l.addr, Err: err}
}

// Serve starts a server that is reached with its own Client, or with Dial. What it
// needs besides a handler, such as hooks of its Config, configure sets; it may be
// nil. In a bubble, close the server before the bubble ends.
func Serve(h http.Handler, configure func(*http.Server)) *httptest.Server {
	l := Listen()
	s := &httptest.Server{Listener: l, Config: &http.Server{Handler: h}}
	if configure != nil {
		configure(s.Config)
	}
	s.Start()
	s.Client().Transport = &http.Transport{DialContext: l.Dial}
	return s
}
