package wire

import (
	"encoding/binary"
	"io"

	"sema/engine"
	"sema/internal/protocol"
)

// Reply answers a Step.
type Reply struct {
	As    string // the session of the server's engine, see Life
	Reply protocol.Reply
}

// AppendReply appends the message. Ids of permits of the client own are sent without
// their first part. Grant.Until is not sent, because it is a time of this process's clock.
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

// Read decodes a message that AppendReply wrote for own. It keeps no reference to b, and
// reuses the memory of r's answers. The error is ErrMalformed.
func (r *Reply) Read(b []byte, own string) error {
	*r = Reply{As: r.As, Reply: protocol.Reply{Answers: r.Reply.Answers[:0]}}
	as := r.As
	r.As = ""
	f := fields{rest: b}
	for f.next() {
		switch f.field {
		case 1:
			r.Reply.Limit = f.int()
		case 2:
			r.Reply.Answers = append(r.Reply.Answers, protocol.Answer{})
			a, in := &r.Reply.Answers[len(r.Reply.Answers)-1], f.nested()
			for in.next() {
				readAnswer(&in, a)
			}
			f.finish(in)
		case 3:
			r.Reply.Recheck = f.time()
		case 4:
			r.Reply.Leave = protocol.Leave(f.byte())
		case 5:
			r.Reply.Recalled = f.bool()
		case 6:
			f.readNotification(&r.Reply.Notification, own)
		case 7:
			r.As = f.textReusing(as)
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

func readAnswer(f *fields, a *protocol.Answer) {
	switch f.field {
	case 1:
		a.Status = protocol.Status(f.byte())
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

func appendNotification(b []byte, n *protocol.Notification, own string) []byte {
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

// readNotification decodes a field with a notification.
func (f *fields) readNotification(n *protocol.Notification, own string) {
	in := f.nested()
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
			n.Recall = protocol.Recall(in.byte())
		case 6:
			n.Closed = in.bool()
		}
	}
	f.finish(in)
}

// readGrant decodes a field with a grant.
func (f *fields) readGrant(own string) protocol.Grant {
	g, in := protocol.Grant{ID: engine.ID{Client: own}}, f.nested()
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
	f.finish(in)
	return g
}

// News is one message of the stream of a client's notifications. The first message is a
// greeting. Empty messages show that the server is alive.
type News struct {
	Server string // greeting: identifies one run of a server
	Fresh  bool   // greeting: the server has no session of the client

	Client       string // the session that receives the notification
	Notification protocol.Notification
}

// maxNews is the largest size of a message of the stream, in bytes.
const maxNews = 16 << 20

// AppendNews appends the length of the message and the message.
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
