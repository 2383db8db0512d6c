package fileengine

import (
	"encoding/binary"
	"errors"
	"hash/crc32"

	"sema/engine"
	"sema/internal/ledger"
	"sema/internal/pack"
)

// A log is the line of its form, a frame with the header, and a frame for each
// record. A frame is the payload's length and checksum, 4 bytes each, and the
// payload. Each checksum goes on from the one before, so that a record counts
// only behind those that it was written behind.
//
// Payloads are written and read by package pack.
const (
	frameHead  = 8
	maxPayload = 64 << 20
)

// castagnoli is made with the first call, and not for programs that use another engine.
func castagnoli() *crc32.Table { return crc32.MakeTable(crc32.Castagnoli) }

var errDamaged = errors.New("damaged")

// header begins a log: whose it is, and the semaphore up to here.
type header struct {
	identity
	Base  int64 // what to add to the clock, in microseconds
	State ledger.Snapshot
}

// identity is what no rewriting changes.
type identity struct {
	Name string
	Boot string // of the host; the clock starts anew with each
	ID   uint64 // of the log; random
}

// record is one step. All processes that apply the same records to the same
// ledger have the same ledger.
type record struct {
	At     int64
	Reap   []string // processes found dead before the step
	Lost   []string // clients that could not be reached during the step
	Client string   // "": nobody's call, only time goes on
	Who    engine.Client
	Call   engine.Call
}

// frame appends a frame to b, and returns the checksum to go on from.
func frame(b []byte, sum uint32, payload []byte) ([]byte, uint32) {
	sum = crc32.Update(sum, castagnoli(), payload)
	b = binary.LittleEndian.AppendUint32(b, uint32(len(payload)))
	b = binary.LittleEndian.AppendUint32(b, sum)
	return append(b, payload...), sum
}

// unframe takes a frame off b. ok is false if there is none that is whole.
func unframe(b []byte, sum uint32) (payload, rest []byte, next uint32, ok bool) {
	if len(b) < frameHead {
		return nil, b, sum, false
	}
	n := int64(binary.LittleEndian.Uint32(b))
	if n > maxPayload || n > int64(len(b)-frameHead) {
		return nil, b, sum, false
	}
	payload = b[frameHead : frameHead+n]
	next = crc32.Update(sum, castagnoli(), payload)
	if next != binary.LittleEndian.Uint32(b[4:]) {
		return nil, b, sum, false
	}
	return payload, b[frameHead+n:], next, true
}

func (rec *record) encode() []byte {
	w := &pack.Writer{B: make([]byte, 0, 256)}
	w.Int(rec.At)
	w.Texts(rec.Reap)
	w.Texts(rec.Lost)
	w.Text(rec.Client)
	if rec.Client == "" {
		return w.B
	}
	w.Who(rec.Who)
	w.Uint(rec.Call.Number)
	w.Bits(rec.Call.Fence)
	w.Uint(uint64(len(rec.Call.Requests)))
	for _, q := range rec.Call.Requests {
		w.Uint(uint64(q.Kind))
		w.ID(q.ID, rec.Client)
		w.Int(int64(q.Limit))
		w.Duration(q.Lease)
		w.Duration(q.Ticket)
		w.Duration(q.Waited)
		w.Bits(q.Wait, q.Unfair, q.Strict, q.Detached, q.Pin, q.Anew, q.Again, q.Mine, q.Newest, q.Who != nil, q.Totals != nil, q.Auto != nil)
		w.Int(int64(q.Behind))
		w.Int(q.Token)
		w.Text(q.Key)
		w.Int(int64(q.PerKey))
		w.Int(int64(q.Cap))
		w.Int(int64(q.Share))
		if q.Who != nil {
			w.Who(*q.Who)
		}
		if t := q.Totals; t != nil {
			w.Int(t.Good)
			w.Int(t.Bad)
			w.Int(t.Waited)
		}
		if a := q.Auto; a != nil {
			w.Int(int64(a.Min))
			w.Int(int64(a.Max))
			w.Int(int64(a.Bad))
		}
	}
	return w.B
}

func decodeRecord(payload []byte) (rec record, ok bool) {
	r := &pack.Reader{B: string(payload)}
	rec.At, rec.Reap, rec.Lost, rec.Client = r.Int(), r.Texts(), r.Texts(), r.Text()
	if rec.Client != "" {
		rec.Who = r.Who()
		rec.Call.Number = r.Uint()
		r.Bits(&rec.Call.Fence)
		for range r.Count() {
			q := engine.Request{Kind: engine.Kind(r.Uint()), ID: r.ID(rec.Client), Limit: int(r.Int())}
			q.Lease, q.Ticket, q.Waited = r.Duration(), r.Duration(), r.Duration()
			named, reports, auto := false, false, false
			r.Bits(&q.Wait, &q.Unfair, &q.Strict, &q.Detached, &q.Pin, &q.Anew, &q.Again, &q.Mine, &q.Newest, &named, &reports, &auto)
			q.Behind, q.Token = int(r.Int()), r.Int()
			q.Key, q.PerKey, q.Cap, q.Share = r.Text(), int(r.Int()), int(r.Int()), int(r.Int())
			if named {
				who := r.Who()
				q.Who = &who
			}
			if reports {
				q.Totals = &engine.Totals{Good: r.Int(), Bad: r.Int(), Waited: r.Int()}
			}
			if auto {
				q.Auto = &engine.Auto{Min: int(r.Int()), Max: int(r.Int()), Bad: int(r.Int())}
			}
			rec.Call.Requests = append(rec.Call.Requests, q)
		}
	}
	return rec, r.Whole()
}

func (h *header) encode() []byte {
	w := &pack.Writer{}
	w.Text(h.Name)
	w.Text(h.Boot)
	w.Uint(h.ID)
	w.Int(h.Base)
	h.State.Append(w)
	return w.B
}

func decodeHeader(payload []byte) (h header, ok bool) {
	r := &pack.Reader{B: string(payload)}
	h.identity = identity{r.Text(), r.Text(), r.Uint()}
	h.Base = r.Int()
	state, err := ledger.ReadSnapshot(r)
	h.State = state
	return h, err == nil && r.Whole()
}

// peek reads the identity off the beginning of a log.
func peek(b []byte) (id identity, ok bool) {
	_, _, rest := readForm(b)
	if len(rest) < frameHead {
		return id, false
	}
	r := &pack.Reader{B: string(rest[frameHead:])}
	id = identity{r.Text(), r.Text(), r.Uint()}
	return id, !r.Bad
}
