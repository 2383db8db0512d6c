package fileengine

import (
	"encoding/binary"
	"time"

	"sema/engine"
)

// message is for another process: that a client is told something, or that the
// client's log has something for its process to see.
func (s *step) message(client string, n *engine.Notification) []byte {
	w := &writer{b: make([]byte, 2, 128)}
	w.text(client)
	if n != nil {
		w.uint(1 | w.bool(n.Ask, 1) | w.bool(n.Renew, 2))
		w.uint(uint64(len(n.Grants)))
		for _, g := range n.Grants {
			w.id(g.ID, client)
			w.int(g.Token)
			w.int(int64(g.Slot))
			w.int(g.Ticket)
			w.duration(s.log.engine.uptime() + time.Until(g.Until)) // by the clock of all
		}
	}
	if len(w.b) > maxMessage {
		return s.message(client, nil)
	}
	if n == nil {
		w.uint(0)
		w.uint(0)
	}
	binary.LittleEndian.PutUint16(w.b, uint16(len(w.b)-2))
	return w.b
}

// receive takes in the messages of other processes, until the inbox is closed.
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
				break // the rest follows
			}
			if size == 0 || size > maxMessage || !e.heed(b[2:2+size]) {
				e.lookAll(false) // called to, or not understood
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

// heed carries out a message.
func (e *Engine) heed(b []byte) (ok bool) {
	r := &reader{b: string(b)}
	client, bits := r.text(), r.uint()
	n := engine.Notification{Ask: bits&2 != 0, Renew: bits&4 != 0}
	now := time.Now()
	for range r.count() {
		g := engine.Grant{ID: r.id(client), Token: r.int(), Slot: int(r.int()), Ticket: r.int()}
		g.Until = now.Add(r.duration() - e.uptime())
		n.Grants = append(n.Grants, g)
	}
	if r.bad {
		return false
	}
	session := e.session(client)
	switch {
	case session == nil: // closed meanwhile
	case bits == 0:
		// Not at once: a process that was handed a permit has better use for
		// the processor now.
		time.AfterFunc(lookSoon, session.log.look)
	default:
		session.deliver(n)
	}
	return true
}
