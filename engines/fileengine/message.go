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
	w := &pack.Writer{B: make([]byte, 2, 128)}
	w.Text(client)
	notified := n != nil
	if !notified {
		n = &protocol.Notification{}
	}
	w.Bits(notified, n.Ask || n.Recheck > 0, n.Renew)
	w.Uint(uint64(len(n.Grants)))
	for _, g := range n.Grants {
		w.ID(g.ID, client)
		w.Int(g.Token)
		w.Int(int64(g.Slot))
		w.Int(g.Ticket)
		w.Duration(s.log.engine.uptime() + time.Until(g.Until)) // by the host's clock
	}
	if len(w.B) > maxMessage {
		return s.message(client, nil)
	}
	binary.LittleEndian.PutUint16(w.B, uint16(len(w.B)-2))
	return w.B
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
	r := &pack.Reader{B: string(b)}
	client, notified, n := r.Text(), false, protocol.Notification{}
	r.Bits(&notified, &n.Ask, &n.Renew)
	now := time.Now()
	for range r.Count() {
		g := protocol.Grant{ID: r.ID(client), Token: r.Int(), Slot: int(r.Int()), Ticket: r.Int()}
		g.Until = now.Add(r.Duration() - e.uptime())
		n.Grants = append(n.Grants, g)
	}
	if r.Bad {
		return false
	}
	session := e.session(client)
	switch {
	case session == nil: // it was closed
	case !notified:
		// Wait a moment: the process that has just been handed the permit needs the
		// processor first.
		time.AfterFunc(lookDelay, session.log.look)
	default:
		session.deliver(n)
	}
	return true
}
