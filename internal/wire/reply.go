package wire

import (
	"encoding/binary"
	"io"

	"sema/engine"
)

// Reply answers a Step.
type Reply struct {
	As    string // the session of the server's engine; see Life
	Reply engine.Reply
}

// AppendReply appends the message. Grants of permits of the client named own
// travel without the first part of their ids. Grant.Until stays here: it is on
// this process's clock.
func AppendReply(b []byte, r *Reply, own string) []byte {
	b = putInt(b, 1, int64(r.Reply.Limit))
	for i := range r.Reply.Answers {
		a := &r.Reply.Answers[i]
		b = putPart(b, 2, func(b []byte) []byte {
			b = putNumber(b, 1, uint64(a.Status))
			b = putInt(b, 2, a.Token)
			b = putInt(b, 3, int64(a.Slot))
			b = putTime(b, 4, a.Lease)
			b = putInt(b, 5, int64(a.Ahead))
			b = putInt(b, 6, a.Ticket)
			return putInt(b, 7, int64(a.Bound))
		})
	}
	b = putTime(b, 3, r.Reply.Recheck)
	b = putNumber(b, 4, uint64(r.Reply.Leave))
	b = putBool(b, 5, r.Reply.Recalled)
	if n := &r.Reply.Notification; !n.Empty() {
		b = putPart(b, 6, func(b []byte) []byte { return appendNotification(b, n, own) })
	}
	b = putText(b, 7, r.As)
	b = putBool(b, 8, r.Reply.Unreachable)
	b = putInt(b, 9, int64(r.Reply.PerKey))
	return putBool(b, 10, r.Reply.Room)
}

// Read makes r what AppendReply wrote for own. It keeps nothing of b, and uses the memory
// of r's answers again. The error is ErrMalformed.
func (r *Reply) Read(b []byte, own string) error {
	*r = Reply{As: r.As, Reply: engine.Reply{Answers: r.Reply.Answers[:0]}}
	as := r.As
	r.As = ""
	f := fields{rest: b}
	for f.next() {
		switch f.field {
		case 1:
			r.Reply.Limit = f.int()
		case 2:
			r.Reply.Answers = append(r.Reply.Answers, engine.Answer{})
			a, in := &r.Reply.Answers[len(r.Reply.Answers)-1], f.within()
			for in.next() {
				readAnswer(&in, a)
			}
			f.left(in)
		case 3:
			r.Reply.Recheck = f.time()
		case 4:
			r.Reply.Leave = engine.Leave(f.byte())
		case 5:
			r.Reply.Recalled = f.bool()
		case 6:
			f.readNotification(&r.Reply.Notification, own)
		case 7:
			r.As = f.textAgain(as)
		case 8:
			r.Reply.Unreachable = f.bool()
		case 9:
			r.Reply.PerKey = f.int()
		case 10:
			r.Reply.Room = f.bool()
		}
	}
	return f.err
}

func readAnswer(f *fields, a *engine.Answer) {
	switch f.field {
	case 1:
		a.Status = engine.Status(f.byte())
	case 2:
		a.Token = f.int64()
	case 3:
		a.Slot = f.int()
	case 4:
		a.Lease = f.time()
	case 5:
		a.Ahead = f.int()
	case 6:
		a.Ticket = f.int64()
	case 7:
		a.Bound = f.int()
	}
}

func appendNotification(b []byte, n *engine.Notification, own string) []byte {
	for i := range n.Grants {
		g := &n.Grants[i]
		b = putPart(b, 1, func(b []byte) []byte {
			b = appendID(b, 1, g.ID, own)
			b = putInt(b, 5, g.Token)
			b = putInt(b, 6, int64(g.Slot))
			b = putInt(b, 7, g.Ticket)
			return putBool(b, 8, g.Unsure)
		})
	}
	b = putBool(b, 2, n.Ask)
	b = putBool(b, 3, n.Renew)
	b = putTime(b, 4, n.Recheck)
	b = putNumber(b, 5, uint64(n.Recall))
	return putBool(b, 6, n.Closed)
}

// readNotification takes in a field that has one within.
func (f *fields) readNotification(n *engine.Notification, own string) {
	in := f.within()
	for in.next() {
		switch in.field {
		case 1:
			n.Grants = append(n.Grants, in.readGrant(own))
		case 2:
			n.Ask = in.bool()
		case 3:
			n.Renew = in.bool()
		case 4:
			n.Recheck = in.time()
		case 5:
			n.Recall = engine.Recall(in.byte())
		case 6:
			n.Closed = in.bool()
		}
	}
	f.left(in)
}

// readGrant is the grant that a field has within.
func (f *fields) readGrant(own string) engine.Grant {
	g, in := engine.Grant{ID: engine.ID{Client: own}}, f.within()
	for in.next() {
		switch in.field {
		case 1, 2, 3, 4:
			in.readID(in.field-1, &g.ID)
		case 5:
			g.Token = in.int64()
		case 6:
			g.Slot = in.int()
		case 7:
			g.Ticket = in.int64()
		case 8:
			g.Unsure = in.bool()
		}
	}
	f.left(in)
	return g
}

// News is one message of the stream that tells a client of its notifications.
// The first one is a greeting. Empty ones show that the server lives.
type News struct {
	Server string // greeting: one life of one server
	Fresh  bool   // greeting: the server has no session of the client

	Client       string // the session that is notified
	Notification engine.Notification
}

// maxNews bounds one message of the stream, in bytes.
const maxNews = 16 << 20

// AppendNews appends the message with its length in front.
func AppendNews(b []byte, n *News) []byte {
	var message []byte
	message = putText(message, 1, n.Server)
	message = putBool(message, 2, n.Fresh)
	message = putText(message, 3, n.Client)
	if !n.Notification.Empty() {
		message = putPart(message, 4, func(b []byte) []byte { return appendNotification(b, &n.Notification, n.Client) })
	}
	b = binary.AppendUvarint(b, uint64(len(message)))
	return append(b, message...)
}

// ReadNews reads the next message of a stream. The error is the reader's, or
// ErrMalformed.
func ReadNews(r interface {
	io.Reader
	io.ByteReader
}) (*News, error) {
	size, err := binary.ReadUvarint(r)
	if err != nil {
		return nil, err
	}
	if size > maxNews {
		return nil, ErrMalformed
	}
	message := make([]byte, size)
	if _, err := io.ReadFull(r, message); err != nil {
		return nil, err
	}
	n := &News{}
	f := fields{rest: message}
	for f.next() {
		switch f.field {
		case 1:
			n.Server = f.text()
		case 2:
			n.Fresh = f.bool()
		case 3:
			n.Client = f.text()
		case 4:
			f.readNotification(&n.Notification, n.Client)
		}
	}
	return n, f.err
}
