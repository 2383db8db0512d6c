package redistest

import (
	"bytes"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// Proxy passes bytes between clients and a server, and breaks them on demand;
// see Trouble.
type Proxy struct {
	listener net.Listener

	mu       sync.Mutex
	upstream string
	trouble  Trouble
	changed  chan struct{} // closed when the trouble is another
	open     map[*pair]struct{}
	closed   bool
	done     chan struct{} // closed by Close
	wg       sync.WaitGroup
}

// pair is one client's connection, and the one to the server that belongs to it.
type pair struct {
	down     *net.TCPConn
	up       net.Conn
	traffic  atomic.Int32 // a Traffic, as soon as it shows
	halfOpen atomic.Bool  // the server's side is gone, and the client is not told
}

// StartProxy listens on a free loopback port and forwards to upstream: host:port, or the path
// of a socket.
func StartProxy(tb TB, upstream string) *Proxy {
	tb.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatalf("redistest: proxy: %v", err)
	}
	p := &Proxy{
		listener: l, upstream: upstream, changed: make(chan struct{}), done: make(chan struct{}),
		open: map[*pair]struct{}{},
	}
	p.wg.Add(1)
	go p.accept()
	tb.Cleanup(p.Close)
	return p
}

// Addr is host:port where the proxy listens.
func (p *Proxy) Addr() string { return p.listener.Addr().String() }

// Port is the port where the proxy listens.
func (p *Proxy) Port() int { return p.listener.Addr().(*net.TCPAddr).Port }

// Forward sends connections to upstream from now on. Open ones stay where they are.
func (p *Proxy) Forward(upstream string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.upstream = upstream
}

// Close ends the proxy with all its connections, and waits until nothing of it is left.
func (p *Proxy) Close() {
	p.mu.Lock()
	if !p.closed {
		p.closed = true
		close(p.done)
	}
	p.mu.Unlock()
	_ = p.listener.Close()
	p.DropAll()
	p.wg.Wait()
}

// DropAll closes every connection that is open now.
func (p *Proxy) DropAll() { p.each(AnyTraffic, (*pair).close) }

// ResetAll resets every connection that is open now: its ends see an error, not an end.
func (p *Proxy) ResetAll() { p.each(AnyTraffic, (*pair).reset) }

// HalfOpen closes the server's side of all connections with the traffic, and
// leaves the clients' side open for as long as the clients like. What they send
// is lost.
func (p *Proxy) HalfOpen(t Traffic) {
	p.each(t, func(c *pair) {
		c.halfOpen.Store(true)
		_ = c.up.Close()
	})
}

// each does something with all open connections of a kind.
func (p *Proxy) each(t Traffic, do func(*pair)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.open {
		if t == AnyTraffic || Traffic(c.traffic.Load()) == t {
			do(c)
		}
	}
}

func (c *pair) close() { _, _ = c.down.Close(), c.up.Close() }

func (c *pair) reset() {
	for _, end := range []net.Conn{c.down, c.up} {
		if tcp, ok := end.(*net.TCPConn); ok { // others have no such end
			_ = tcp.SetLinger(0)
		}
	}
	c.close()
}

func (p *Proxy) accept() {
	defer p.wg.Done()
	for {
		down, err := p.listener.Accept()
		if err != nil {
			return
		}
		p.wg.Add(1)
		go p.serve(down.(*net.TCPConn))
	}
}

// serve passes bytes both ways until either end closes.
func (p *Proxy) serve(down *net.TCPConn) {
	defer p.wg.Done()
	defer func() { _ = down.Close() }()
	p.mu.Lock()
	refuse, upstream := p.trouble.Refuse, p.upstream
	p.mu.Unlock()
	if refuse {
		return
	}
	network := "tcp"
	if strings.HasPrefix(upstream, "/") {
		network = "unix"
	}
	up, err := net.DialTimeout(network, upstream, 5*time.Second)
	if err != nil {
		return
	}
	c := &pair{down: down, up: up}
	defer c.close()
	p.mu.Lock()
	late := p.closed || p.trouble.Refuse
	if !late {
		p.open[c] = struct{}{}
	}
	p.mu.Unlock()
	if late {
		return
	}
	var replies sync.WaitGroup
	replies.Go(func() { p.pump(c, true) })
	p.pump(c, false)
	replies.Wait()
	p.mu.Lock()
	delete(p.open, c)
	p.mu.Unlock()
}

// pump copies the requests of a connection, or the replies, until either end closes.
func (p *Proxy) pump(c *pair, replies bool) {
	src, dst := net.Conn(c.down), c.up
	if replies {
		src, dst = dst, src
	}
	buf := make([]byte, 64<<10)
	for {
		n, err := src.Read(buf)
		if err == nil {
			err = p.pass(c, dst, buf[:n], replies)
		}
		if err == nil {
			continue
		}
		if !c.halfOpen.Load() {
			c.close()
			return
		}
		if replies {
			return
		}
		for err = nil; err == nil; { // until the client gives up
			_, err = src.Read(buf)
		}
		c.close()
		return
	}
}

// Traffic is what a connection is for, as its requests show.
type Traffic int32

// What connections are for.
const (
	AnyTraffic    Traffic = iota
	Subscriptions         // it has subscribed to a channel
	Replication           // a replica's, to its master
)

var marks = map[Traffic][][]byte{
	Subscriptions: {[]byte("\r\nsubscribe\r\n"), []byte("\r\nssubscribe\r\n"), []byte("listen \"")},
	Replication:   {[]byte("\r\nreplconf\r\n"), []byte("\r\npsync\r\n")},
}

// notice looks what a connection is for.
func (c *pair) notice(request []byte) {
	if c.traffic.Load() != 0 {
		return
	}
	lower := bytes.ToLower(request)
	for t, words := range marks {
		for _, w := range words {
			if bytes.Contains(lower, w) {
				c.traffic.Store(int32(t))
			}
		}
	}
}
