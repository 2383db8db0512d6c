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
	c := coder{b: b}
	c.reply(r, own)
	return c.b
}

// Read decodes a message that AppendReply wrote for own. It keeps no reference to b, and
// reuses the memory of r's answers. The error is ErrMalformed.
func (r *Reply) Read(b []byte, own string) error {
	c := reader(b, r.As)
	*r = Reply{Reply: protocol.Reply{Answers: r.Reply.Answers[:0]}}
	for c.next() {
		c.reply(r, own)
	}
	return c.err
}

func (c *coder) reply(of *Reply, own string) {
	r := &of.Reply
	c.int(1, &r.Limit)
	list(c, 2, &r.Answers, protocol.Answer{}, func(a *protocol.Answer) {
		small(c, 1, &a.Status)
		c.int64(2, &a.Token)
		c.int(3, &a.Slot)
		c.time(4, &a.Lease)
		c.int(5, &a.Ahead)
		c.int64(6, &a.Ticket)
		c.int(7, &a.Bound)
		c.int(8, &a.Depth)
		c.int(9, &a.Pool)
		c.int(10, &a.Used)
	})
	c.time(3, &r.Recheck)
	c.bool(4, &r.Keep)
	c.bool(5, &r.Recalled)
	c.notification(6, &r.Notification, own)
	c.text(7, &of.As)
	c.bool(8, &r.Unreachable)
	c.int(9, &r.Caps[0])
	c.bool(10, &r.Room)
	c.int(11, &r.Caps[1])
	c.int(12, &r.Caps[2])
	c.text(13, (*string)(&r.Pools))
	c.bool(14, &r.Watched)
	c.bool(15, &r.Halted)
}

func (c *coder) notification(field uint64, n *protocol.Notification, own string) {
	if !c.reading && n.Empty() {
		return
	}
	c.part(field, func() {
		list(c, 1, &n.Grants, protocol.Grant{ID: engine.ID{Client: own}}, func(g *protocol.Grant) {
			c.id(1, &g.ID, own)
			c.int64(5, &g.Token)
			c.int(6, &g.Slot)
			c.int64(7, &g.Ticket)
			c.bool(8, &g.Unsure)
		})
		c.bool(2, &n.Ask)
		c.bool(3, &n.Renew)
		c.time(4, &n.Recheck)
		c.bool(5, &n.Recall)
		c.bool(6, &n.Closed)
	})
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
	var c coder
	c.news(n)
	b = binary.AppendUvarint(b, uint64(len(c.b)))
	return append(b, c.b...)
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
	n, c := &News{}, reader(message, "")
	for c.next() {
		c.news(n)
	}
	return n, c.err
}

func (c *coder) news(n *News) {
	c.text(1, &n.Server)
	c.bool(2, &n.Fresh)
	c.text(3, &n.Client)
	c.notification(4, &n.Notification, n.Client)
}
