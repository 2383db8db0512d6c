package wire

import (
	"time"

	"sema/engine"
	"sema/internal/protocol"
)

// ContentType is the content type of all messages.
const ContentType = "application/x-sema-wire"

// Step is one call of a client's session.
type Step struct {
	Client string // the session; the first part of the ids of its permits
	Open   *Open  // nil: the server has opened the session
	Call   protocol.Call

	// Within is how long the client waits for the answer. 0: without limit.
	Within time.Duration
}

// Open tells a server to open a session.
type Open struct {
	Name string // of the semaphore
	Who  engine.Client

	// Was has the earlier lives of the session on this or other servers, oldest
	// first.
	Was []Life
}

// Life is the time for which a server had a session open.
type Life struct {
	As   string // the session of the server's engine that executed its calls
	Upto uint64 // the largest number of a permit that was asked for until its end
}

// AppendStep appends the message. Ids of the session's own permits are sent without their
// first part.
func AppendStep(b []byte, s *Step) []byte {
	c := coder{b: b}
	c.step(s)
	return c.b
}

// Read decodes a message that AppendStep wrote. It keeps no reference to b, and reuses the
// memory of s's requests. The error is ErrMalformed.
func (s *Step) Read(b []byte) error {
	c := reader(b, s.Client)
	*s = Step{Call: protocol.Call{Requests: s.Call.Requests[:0]}}
	for c.next() {
		c.step(s)
	}
	return c.err
}

func (c *coder) step(s *Step) {
	c.text(1, &s.Client)
	optional(c, 2, &s.Open, func(o *Open) {
		c.text(1, &o.Name)
		c.client(&o.Who)
		list(c, 5, &o.Was, Life{}, func(l *Life) {
			c.text(1, &l.As)
			c.uint64(2, &l.Upto)
		})
	})
	c.uint64(3, &s.Call.Number)
	c.bool(4, &s.Call.Fence)
	c.time(5, &s.Call.Keep)
	list(c, 6, &s.Call.Requests, protocol.Request{ID: engine.ID{Client: s.Client}}, func(r *protocol.Request) { c.request(r, s.Client) })
	c.time(7, &s.Within)
}

func (c *coder) client(of *engine.Client) {
	c.text(2, &of.Host)
	c.int(3, &of.PID)
	c.text(4, &of.Label)
	c.text(6, &of.Caller)
	c.time(7, &of.Lease)
	c.text(8, &of.Version)
}

func (c *coder) request(r *protocol.Request, own string) {
	small(c, 1, &r.Kind)
	c.id(2, &r.ID, own)
	c.int(6, &r.Limit)
	c.time(7, &r.Lease)
	c.time(8, &r.Ticket)
	c.time(9, &r.Waited)
	c.bits(10, &r.Wait, &r.Unfair, &r.Strict, &r.Anew, &r.Detached, &r.Pin, &r.Again, &r.Mine, &r.Newest, &r.Observe)
	c.int(11, &r.Behind)
	c.int64(12, &r.Token)
	c.text(14, (*string)(&r.Key))
	c.int(15, &r.Caps[0])
	c.int(16, &r.Cap)
	c.int(17, &r.Share)
	optional(c, 18, &r.Totals, func(t *protocol.Totals) {
		c.int64(1, &t.Good)
		c.int64(2, &t.Bad)
		c.int64(3, &t.Waited)
	})
	optional(c, 19, &r.Auto, func(a *engine.Auto) {
		c.int(1, &a.Min)
		c.int(2, &a.Max)
		c.int(3, &a.Bad)
	})
	c.int(20, &r.Caps[1])
	c.int(21, &r.Caps[2])
	c.text(22, (*string)(&r.Pools))
	c.text(23, (*string)(&r.Takes))
	optional(c, 13, &r.Who, c.client)
}

// bits is a number with a bit for each value, the lowest first.
func (c *coder) bits(field uint64, values ...*bool) {
	bits := uint64(0)
	for i, v := range values {
		if *v {
			bits |= 1 << i
		}
	}
	if n, ok := c.encode(field, bits); ok {
		for i, v := range values {
			*v = n&(1<<i) != 0
		}
	}
}

// id has four fields, from first on: number, weight, slot, client.
func (c *coder) id(first uint64, id *engine.ID, own string) {
	c.uint64(first, &id.Number)
	c.int(first+1, &id.Weight)
	c.bool(first+2, &id.Slot)
	if c.reading || id.Client != own {
		c.text(first+3, &id.Client)
	}
}
