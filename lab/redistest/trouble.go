package redistest

import (
	"errors"
	"math/rand/v2"
	"net"
	"time"
)

// Trouble is what a Proxy does to what passes it. The zero value does nothing.
// A piece is what a client or a server sends at once: hardly ever more or less
// than one request or reply. Where a field counts, one piece in so many is hit.
type Trouble struct {
	Refuse              bool // new connections are closed at once
	Silent              bool // connections stay open and nothing passes; what was sent meanwhile arrives afterwards
	SilentSubscriptions bool // the same for connections that subscribe
	SilentReplication   bool // the same for those of replicas to their masters

	LoseRequests int // the server never gets the piece, and the connection is closed
	LoseReplies  int // the connection is closed in place of the piece: the server has done what the client will never hear of
	Reset        int // the connection is reset in place of the piece

	Hold    int           // a request waits; the server gets it later, though its client may be gone
	HoldFor time.Duration // for so long

	Latency time.Duration // each piece comes so much later
	Jitter  time.Duration // and up to that much more
	Slice   int           // at most so many bytes come at once
	Rate    int           // at most so many bytes come in a second, each way of each connection
}

var errBroken = errors.New("broken on demand")

// slicePause is before each part of a sliced piece, so that they are read apart.
const slicePause = 200 * time.Microsecond

// Change changes the trouble. Other fields stay as they are, so that one fault
// does not end another.
func (p *Proxy) Change(change func(*Trouble)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	change(&p.trouble)
	close(p.changed)
	p.changed = make(chan struct{})
}

// Resume ends all trouble. What was held up flows first.
func (p *Proxy) Resume() { p.Change(func(t *Trouble) { *t = Trouble{} }) }

// Silence holds up all bytes both ways, as a partition does: connections stay
// open and new ones are accepted, nothing arrives. Resume ends it.
func (p *Proxy) Silence() { p.Change(func(t *Trouble) { t.Silent = true }) }

// LoseReplies lets requests through and drops each connection in place of its
// next reply.
func (p *Proxy) LoseReplies() { p.Change(func(t *Trouble) { t.LoseReplies = 1 }) }

// Refuse drops all connections and every new one at once.
func (p *Proxy) Refuse() {
	p.Change(func(t *Trouble) { t.Refuse = true })
	p.DropAll()
}

// pass lets a piece through to dst, as the trouble of the moment wants it.
func (p *Proxy) pass(c *pair, dst net.Conn, piece []byte, reply bool) error {
	if !reply {
		c.notice(piece)
	}
	t, err := p.flowing(c)
	switch {
	case err != nil:
		return err
	case reply && one(t.LoseReplies), !reply && one(t.LoseRequests):
		return errBroken
	case one(t.Reset):
		c.reset()
		return errBroken
	}
	late := t.Latency
	if t.Jitter > 0 {
		late += rand.N(t.Jitter)
	}
	if !reply && one(t.Hold) {
		late += t.HoldFor
	}
	if err := p.sleep(late); err != nil {
		return err
	}
	for len(piece) > 0 {
		part, pause := len(piece), time.Duration(0)
		if t.Slice > 0 {
			part, pause = min(part, t.Slice), slicePause
		}
		if t.Rate > 0 {
			part = min(part, max(1, t.Rate/100))
			pause += time.Duration(part) * time.Second / time.Duration(t.Rate)
		}
		if err := p.sleep(pause); err != nil {
			return err
		}
		if _, err := dst.Write(piece[:part]); err != nil {
			return err
		}
		piece = piece[part:]
	}
	return nil
}

// one is true one time in n.
func one(n int) bool { return n > 0 && rand.IntN(n) == 0 }

// flowing waits until nothing silences the connection.
func (p *Proxy) flowing(c *pair) (Trouble, error) {
	for {
		p.mu.Lock()
		t, changed := p.trouble, p.changed
		p.mu.Unlock()
		traffic := Traffic(c.traffic.Load())
		if !t.Silent && !(t.SilentSubscriptions && traffic == Subscriptions) && !(t.SilentReplication && traffic == Replication) {
			return t, nil
		}
		select {
		case <-changed:
		case <-p.done:
			return t, errBroken
		}
	}
}

func (p *Proxy) sleep(d time.Duration) error {
	if d <= 0 {
		return nil
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-p.done:
		return errBroken
	}
}
