package fileengine

import (
	"encoding/binary"
	"time"

	"sema/internal/pack"
	"sema/internal/protocol"
)

// message encodes a notification for a client of another process. With a nil n, or if the
// notification is too large, it asks that process to look at the client's log.
func (s *step) message(client string, n *protocol.Notification) []byte {
	c := &pack.Coder{B: make([]byte, 2, 128)}
	m := letter{client: client, notified: n != nil}
	if m.notified {
		m.Notification = *n
		m.Ask = n.Ask || n.Recheck > 0
	}
	m.code(c, s.log.engine)
	if len(c.B) > maxMessage {
		return s.message(client, nil)
	}
	binary.LittleEndian.PutUint16(c.B, uint16(len(c.B)-2))
	return c.B
}

// letter is a message to another process. If it is not notified, that process looks at the client's log.
type letter struct {
	client   string
	notified bool
	protocol.Notification
}

// code appends the message, or reads it. Of each lease it has the rest, and the message has the
// moment when that was left.
func (m *letter) code(c *pack.Coder, e *Engine) {
	early, now := time.Now(), e.moment()
	late, sent := time.Now(), now
	sent.code(c)
	c.Name(&m.client)
	c.Bits(&m.notified, &m.Ask, &m.Renew)
	pack.List(c, &m.Grants, func(g *protocol.Grant) {
		c.ID(&g.ID)
		pack.Int(c, &g.Token)
		pack.Int(c, &g.Slot)
		pack.Int(c, &g.Ticket)
		left := g.Until.Sub(late)
		c.Duration(&left)
		g.Until = early.Add(left - time.Duration(sent.most(now))*time.Microsecond)
	})
}

// receive handles the messages of other processes until the inbox is closed.
func (e *Engine) receive(in *inbox) {
	buf := make([]byte, 64<<10)
	have := 0
	for {
		n, err := in.read(buf[have:])
		if err != nil {
			return
		}
		b := buf[:have+n]
		for len(b) >= 2 {
			size := int(binary.LittleEndian.Uint16(b))
			if size > len(b)-2 && size <= maxMessage {
				break // the rest of the message follows
			}
			if size == 0 || size > maxMessage || !e.handle(b[2:2+size]) {
				e.lookAll(false) // a request to look, or a message that cannot be decoded
				b = b[:min(len(b), 2)]
			}
			b = b[min(len(b), 2+size):]
		}
		have = copy(buf, b)
		if n > fullInbox {
			e.lookAll(false)
		}
	}
}

// handle handles one message. ok is false if it cannot be decoded.
func (e *Engine) handle(b []byte) (ok bool) {
	c, m := pack.Reader(b), letter{}
	if m.code(c, e); c.Err != nil {
		return false
	}
	session := e.session(m.client)
	switch {
	case session == nil: // it was closed
	case !m.notified:
		// Wait a moment: the process that has just been handed the permit needs the
		// processor first.
		time.AfterFunc(lookDelay, session.log.look)
	default:
		session.deliver(m.Notification)
	}
	return true
}
