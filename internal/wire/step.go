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
	b = putText(b, 1, s.Client)
	if o := s.Open; o != nil {
		b = putPart(b, 2, func(b []byte) []byte {
			b = putText(b, 1, o.Name)
			b = appendClient(b, &o.Who)
			for _, l := range o.Was {
				b = putPart(b, 5, func(b []byte) []byte {
					return putNumber(putText(b, 1, l.As), 2, l.Upto)
				})
			}
			return b
		})
	}
	b = putNumber(b, 3, s.Call.Number)
	b = putBool(b, 4, s.Call.Fence)
	b = putTime(b, 5, s.Call.Keep)
	for i := range s.Call.Requests {
		r := &s.Call.Requests[i]
		b = putPart(b, 6, func(b []byte) []byte { return appendRequest(b, r, s.Client) })
	}
	return putTime(b, 7, s.Within)
}

// appendClient uses the fields 2, 3, 4, 6, 7 and 8.
func appendClient(b []byte, c *engine.Client) []byte {
	b = putText(b, 2, c.Host)
	b = putInt(b, 3, int64(c.PID))
	b = putText(b, 4, c.Label)
	b = putText(b, 6, c.Caller)
	b = putTime(b, 7, c.Lease)
	return putText(b, 8, c.Version)
}

// readClient decodes one of the fields of a client.
func (f *fields) readClient(c *engine.Client) {
	switch f.field {
	case 2:
		c.Host = f.text()
	case 3:
		c.PID = f.int()
	case 4:
		c.Label = f.text()
	case 6:
		c.Caller = f.text()
	case 7:
		c.Lease = f.time()
	case 8:
		c.Version = f.text()
	}
}

func appendRequest(b []byte, r *protocol.Request, own string) []byte {
	b = putNumber(b, 1, uint64(r.Kind))
	b = appendID(b, 2, r.ID, own)
	b = putInt(b, 6, int64(r.Limit))
	b = putTime(b, 7, r.Lease)
	b = putTime(b, 8, r.Ticket)
	b = putTime(b, 9, r.Waited)
	bits := uint64(0)
	for i, set := range flags(r) {
		if *set {
			bits |= 1 << i
		}
	}
	b = putNumber(b, 10, bits)
	b = putInt(b, 11, int64(r.Behind))
	b = putInt(b, 12, r.Token)
	b = putText(b, 14, r.Key)
	b = putInt(b, 15, int64(r.PerKey))
	b = putInt(b, 16, int64(r.Cap))
	b = putInt(b, 17, int64(r.Share))
	b = appendReport(b, r)
	if r.Who == nil {
		return b
	}
	return putPart(b, 13, func(b []byte) []byte { return appendClient(b, r.Who) })
}

// flags are the fields of a request that are sent as bits, the lowest bit first.
func flags(r *protocol.Request) [9]*bool {
	return [9]*bool{&r.Wait, &r.Unfair, &r.Strict, &r.Anew, &r.Detached, &r.Pin, &r.Again, &r.Mine, &r.Newest}
}

// appendID uses four fields, from first on: number, weight, slot, client.
func appendID(b []byte, first int, id engine.ID, own string) []byte {
	b = putNumber(b, first, id.Number)
	b = putInt(b, first+1, int64(id.Weight))
	b = putBool(b, first+2, id.Slot)
	if id.Client != own {
		b = putText(b, first+3, id.Client)
	}
	return b
}

// readID decodes one of the four fields of an id.
func (f *fields) readID(at uint64, id *engine.ID) {
	switch at {
	case 0:
		id.Number = f.number
	case 1:
		id.Weight = f.int()
	case 2:
		id.Slot = f.bool()
	case 3:
		id.Client = f.text()
	}
}

// Read decodes a message that AppendStep wrote. It keeps no reference to b, and reuses the
// memory of s's requests. The error is ErrMalformed.
func (s *Step) Read(b []byte) error {
	client := s.Client
	*s = Step{Call: protocol.Call{Requests: s.Call.Requests[:0]}}
	f := fields{rest: b}
	for f.next() {
		switch f.field {
		case 1:
			s.Client = f.textReusing(client)
		case 2:
			s.Open = &Open{}
			in := f.nested()
			for in.next() {
				s.Open.read(&in)
			}
			f.finish(in)
		case 3:
			s.Call.Number = f.number
		case 4:
			s.Call.Fence = f.bool()
		case 5:
			s.Call.Keep = f.time()
		case 6:
			s.Call.Requests = append(s.Call.Requests, protocol.Request{ID: engine.ID{Client: s.Client}})
			r, in := &s.Call.Requests[len(s.Call.Requests)-1], f.nested()
			for in.next() {
				readRequest(&in, r)
			}
			f.finish(in)
		case 7:
			s.Within = f.time()
		}
	}
	return f.err
}

func (o *Open) read(f *fields) {
	switch f.field {
	case 1:
		o.Name = f.text()
	case 5:
		l, in := Life{}, f.nested()
		for in.next() {
			switch in.field {
			case 1:
				l.As = in.text()
			case 2:
				l.Upto = in.number
			}
		}
		f.finish(in)
		o.Was = append(o.Was, l)
	default:
		f.readClient(&o.Who)
	}
}

func readRequest(f *fields, r *protocol.Request) {
	switch f.field {
	case 1:
		r.Kind = protocol.Kind(f.byte())
	case 2, 3, 4, 5:
		f.readID(f.field-2, &r.ID)
	case 6:
		r.Limit = f.int()
	case 7:
		r.Lease = f.time()
	case 8:
		r.Ticket = f.time()
	case 9:
		r.Waited = f.time()
	case 10:
		for i, set := range flags(r) {
			*set = f.number&(1<<i) != 0
		}
	case 11:
		r.Behind = f.int()
	case 12:
		r.Token = f.int64()
	case 13:
		r.Who = &engine.Client{}
		in := f.nested()
		for in.next() {
			in.readClient(r.Who)
		}
		f.finish(in)
	case 14:
		r.Key = f.text()
	case 15:
		r.PerKey = f.int()
	case 16:
		r.Cap = f.int()
	case 17:
		r.Share = f.int()
	case 18, 19:
		f.readReport(r)
	}
}
