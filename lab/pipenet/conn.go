package pipenet

import (
	"io"
	"net"
	"os"
	"sync"
	"syscall"
	"time"
)

// window is how many bytes wait in one direction until somebody reads them. A
// write of more waits, as on a socket. With net.Pipe each write waits for its
// reader, and two sides that both write wait for ever.
const window = 64 << 10

// conn is one end of a connection.
type conn struct {
	local, remote net.Addr
	in, out       *way
	close         func()
}

// way is one direction of a connection.
type way struct {
	mu      sync.Mutex
	changed *sync.Cond
	waiting []byte
	ended   bool // nothing more will be written
	gone    bool // nothing more will be read
	reader  deadline
	writer  deadline
}

// pipe returns the two ends of a connection between these addresses.
func pipe(a, b net.Addr) (near, far *conn) {
	there, back := &way{}, &way{}
	there.changed, back.changed = sync.NewCond(&there.mu), sync.NewCond(&back.mu)
	end := func(local, remote net.Addr, in, out *way) *conn {
		c := &conn{local: local, remote: remote, in: in, out: out}
		c.close = sync.OnceFunc(func() {
			in.change(func() { in.gone, in.waiting = true, nil; in.reader.set(in, time.Time{}) })
			out.change(func() { out.ended = true; out.writer.set(out, time.Time{}) })
		})
		return c
	}
	return end(a, b, back, there), end(b, a, there, back)
}

func (w *way) change(f func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	f()
	w.changed.Broadcast()
}

// deadline is that of a way's reader or writer, under the way's lock.
type deadline struct {
	at    time.Time
	timer *time.Timer
}

func (d *deadline) set(w *way, at time.Time) {
	if d.timer != nil {
		d.timer.Stop()
		d.timer = nil
	}
	// A time that has passed needs no timer: the one who waits is woken anyway. And one
	// set in a bubble now and then crashes Go 1.26.8 (in runtime.(*timer).modify).
	if d.at = at; time.Until(at) > 0 {
		d.timer = time.AfterFunc(time.Until(at), func() { w.change(func() {}) })
	}
}

func (d *deadline) passed() bool { return !d.at.IsZero() && !time.Now().Before(d.at) }

// Read reads what the other end wrote. After its Close or CloseWrite, and all that
// it wrote before, that is the end.
func (c *conn) Read(p []byte) (n int, err error) {
	w := c.in
	w.mu.Lock()
	defer w.mu.Unlock()
	for {
		switch {
		case w.gone:
			return 0, c.fail("read", net.ErrClosed)
		case w.reader.passed():
			return 0, c.fail("read", os.ErrDeadlineExceeded)
		case len(p) == 0:
			return 0, nil
		case len(w.waiting) > 0:
			n = copy(p, w.waiting)
			w.waiting = w.waiting[n:]
			w.changed.Broadcast()
			return n, nil
		case w.ended:
			return 0, io.EOF
		}
		w.changed.Wait()
	}
}

// Write writes to the other end, and waits while too much waits there. If the
// other end is closed, that is an error.
func (c *conn) Write(p []byte) (n int, err error) {
	w := c.out
	w.mu.Lock()
	defer w.mu.Unlock()
	for {
		switch {
		case w.ended:
			return n, c.fail("write", net.ErrClosed)
		case w.writer.passed():
			return n, c.fail("write", os.ErrDeadlineExceeded)
		case w.gone:
			return n, c.fail("write", syscall.EPIPE)
		}
		if room := min(window-len(w.waiting), len(p)); room > 0 {
			w.waiting = append(w.waiting, p[:room]...)
			p, n = p[room:], n+room
			w.changed.Broadcast()
		}
		if len(p) == 0 {
			return n, nil
		}
		w.changed.Wait()
	}
}

// Close ends both directions. What was written is still read at the other end.
func (c *conn) Close() error {
	c.close()
	return nil
}

// CloseWrite ends what the other end reads.
func (c *conn) CloseWrite() error {
	c.out.change(func() { c.out.ended = true })
	return nil
}

func (c *conn) LocalAddr() net.Addr  { return c.local }
func (c *conn) RemoteAddr() net.Addr { return c.remote }

func (c *conn) SetDeadline(t time.Time) error {
	_ = c.SetReadDeadline(t)
	return c.SetWriteDeadline(t)
}

func (c *conn) SetReadDeadline(t time.Time) error {
	c.in.change(func() { c.in.reader.set(c.in, t) })
	return nil
}

func (c *conn) SetWriteDeadline(t time.Time) error {
	c.out.change(func() { c.out.writer.set(c.out, t) })
	return nil
}

func (c *conn) fail(op string, err error) error {
	return &net.OpError{Op: op, Net: "tcp", Source: c.local, Addr: c.remote, Err: err}
}
