package redistest

import (
	"net"
	"sync"
	"testing"
	"time"
)

// Proxy passes bytes between clients and a server, and breaks them on demand.
type Proxy struct {
	upstream string
	listener net.Listener

	mu      sync.Mutex
	open    map[net.Conn]struct{}
	silent  chan struct{} // closed while bytes flow; a fresh one holds them up
	discard bool          // replies are swallowed, then the connection dropped
	refuse  bool
	wg      sync.WaitGroup
}

// StartProxy listens on a free loopback port and forwards to upstream.
func StartProxy(tb testing.TB, upstream string) *Proxy {
	tb.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatalf("redistest: proxy: %v", err)
	}
	flowing := make(chan struct{})
	close(flowing)
	p := &Proxy{upstream: upstream, listener: l, open: map[net.Conn]struct{}{}, silent: flowing}
	p.wg.Add(1)
	go p.accept()
	tb.Cleanup(func() {
		_ = l.Close()
		p.Resume()
		p.DropAll()
		p.wg.Wait()
	})
	return p
}

// Addr is host:port where the proxy listens.
func (p *Proxy) Addr() string { return p.listener.Addr().String() }

// Port is the port where the proxy listens.
func (p *Proxy) Port() int { return p.listener.Addr().(*net.TCPAddr).Port }

// Silence holds up all bytes both ways, as a partition does: connections stay
// open and new ones are accepted, nothing arrives. Resume ends it.
func (p *Proxy) Silence() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.flowing() {
		p.silent = make(chan struct{})
	}
}

// Resume lets bytes flow again, the held-up ones first.
func (p *Proxy) Resume() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.flowing() {
		close(p.silent)
	}
	p.discard, p.refuse = false, false
}

// LoseReplies lets requests through and drops each connection in place of its
// next reply: the server has done what the client will never hear of.
func (p *Proxy) LoseReplies() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.discard = true
}

// Refuse drops all connections and every new one at once.
func (p *Proxy) Refuse() {
	p.mu.Lock()
	p.refuse = true
	p.mu.Unlock()
	p.DropAll()
}

// DropAll closes every connection that is open now.
func (p *Proxy) DropAll() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.open {
		_ = c.Close()
	}
}

func (p *Proxy) flowing() bool {
	select {
	case <-p.silent:
		return true
	default:
		return false
	}
}

func (p *Proxy) accept() {
	defer p.wg.Done()
	for {
		down, err := p.listener.Accept()
		if err != nil {
			return
		}
		p.mu.Lock()
		refuse := p.refuse
		p.mu.Unlock()
		if refuse {
			_ = down.Close()
			continue
		}
		up, err := net.DialTimeout("tcp", p.upstream, 5*time.Second)
		if err != nil {
			_ = down.Close()
			continue
		}
		p.mu.Lock()
		p.open[down], p.open[up] = struct{}{}, struct{}{}
		p.mu.Unlock()
		p.wg.Add(2)
		go p.pump(up, down, false)
		go p.pump(down, up, true)
	}
}

// pump copies from src to dst until either end closes.
func (p *Proxy) pump(dst, src net.Conn, replies bool) {
	defer p.wg.Done()
	defer func() {
		_, _ = dst.Close(), src.Close()
		p.mu.Lock()
		delete(p.open, dst)
		delete(p.open, src)
		p.mu.Unlock()
	}()
	buf := make([]byte, 64<<10)
	for {
		n, err := src.Read(buf)
		if err != nil {
			return
		}
		p.mu.Lock()
		gate, lose := p.silent, p.discard && replies
		p.mu.Unlock()
		<-gate
		if lose {
			return
		}
		if _, err := dst.Write(buf[:n]); err != nil {
			return
		}
	}
}
