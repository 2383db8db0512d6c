package fileengine

import (
	"encoding/binary"
	"errors"
	"hash/crc32"
	"time"

	"sema/engine"
	"sema/internal/ledger"
)

// A log is the line magic, a frame with the header, and a frame for each
// record. A frame is the payload's length and checksum, 4 bytes each, and the
// payload. Each checksum goes on from the one before, so that a record counts
// only behind those that it was written behind.
//
// In a payload, numbers are varints, and texts have their length in front.
const (
	magic      = "sema log 4\n"
	frameHead  = 8
	maxPayload = 64 << 20
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

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
	sum = crc32.Update(sum, castagnoli, payload)
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
	next = crc32.Update(sum, castagnoli, payload)
	if next != binary.LittleEndian.Uint32(b[4:]) {
		return nil, b, sum, false
	}
	return payload, b[frameHead+n:], next, true
}

// writer appends values to a payload.
type writer struct{ b []byte }

func (w *writer) uint(v uint64)            { w.b = binary.AppendUvarint(w.b, v) }
func (w *writer) int(v int64)              { w.b = binary.AppendVarint(w.b, v) }
func (w *writer) duration(d time.Duration) { w.int(d.Microseconds()) }
func (w *writer) text(s string)            { w.uint(uint64(len(s))); w.b = append(w.b, s...) }
func (w *writer) bool(v bool, bit uint) uint64 {
	if v {
		return 1 << bit
	}
	return 0
}

func (w *writer) texts(list []string) {
	w.uint(uint64(len(list)))
	for _, s := range list {
		w.text(s)
	}
}

// id writes a permit's name; most are of the client whose step it is.
func (w *writer) id(id engine.ID, client string) {
	w.uint(w.bool(id.Slot, 0) | w.bool(id.Client != client, 1))
	if id.Client != client {
		w.text(id.Client)
	}
	w.uint(id.Number)
	w.int(int64(id.Weight))
}

func (w *writer) who(c engine.Client) {
	w.text(c.Host)
	w.int(int64(c.PID))
	w.text(c.Label)
	w.text(c.Caller)
	w.duration(c.Lease)
}

// reader takes values off a payload. After the first that is not there, all
// are zero and bad is set.
type reader struct {
	b   string // so that the texts need no copies
	bad bool
}

func (r *reader) fail() {
	r.b, r.bad = "", true
}

func (r *reader) uint() (v uint64) {
	for i := 0; i < len(r.b) && i < binary.MaxVarintLen64; i++ {
		v |= uint64(r.b[i]&0x7f) << (7 * i)
		if r.b[i] < 0x80 {
			r.b = r.b[i+1:]
			return v
		}
	}
	r.fail()
	return 0
}

func (r *reader) int() int64 {
	v := r.uint()
	return int64(v>>1) ^ -int64(v&1)
}

func (r *reader) duration() time.Duration { return time.Duration(r.int()) * time.Microsecond }

func (r *reader) text() string {
	n := r.uint()
	if n > uint64(len(r.b)) {
		r.fail()
		return ""
	}
	s := r.b[:n]
	r.b = r.b[n:]
	return s
}

// count reads how many values follow, each of which has at least a byte.
func (r *reader) count() int {
	n := r.uint()
	if n > uint64(len(r.b)) {
		r.fail()
		return 0
	}
	return int(n)
}

func (r *reader) texts() []string {
	var list []string
	for range r.count() {
		list = append(list, r.text())
	}
	return list
}

func (r *reader) id(client string) engine.ID {
	bits := r.uint()
	if bits&2 != 0 {
		client = r.text()
	}
	return engine.ID{Client: client, Slot: bits&1 != 0, Number: r.uint(), Weight: int(r.int())}
}

func (r *reader) who() engine.Client {
	return engine.Client{Host: r.text(), PID: int(r.int()), Label: r.text(), Caller: r.text(), Lease: r.duration()}
}

func (rec *record) encode() []byte {
	w := &writer{b: make([]byte, 0, 256)}
	w.int(rec.At)
	w.texts(rec.Reap)
	w.texts(rec.Lost)
	w.text(rec.Client)
	if rec.Client == "" {
		return w.b
	}
	w.who(rec.Who)
	w.uint(rec.Call.Number)
	w.uint(w.bool(rec.Call.Fence, 0))
	w.uint(uint64(len(rec.Call.Requests)))
	for _, q := range rec.Call.Requests {
		w.uint(uint64(q.Kind))
		w.id(q.ID, rec.Client)
		w.int(int64(q.Limit))
		w.duration(q.Lease)
		w.duration(q.Ticket)
		w.duration(q.Waited)
		w.uint(w.bool(q.Wait, 0) | w.bool(q.Unfair, 1) | w.bool(q.Strict, 2) | w.bool(q.Detached, 3) | w.bool(q.Pin, 4) | w.bool(q.Anew, 5) | w.bool(q.Again, 6) | w.bool(q.Mine, 7) | w.bool(q.Who != nil, 8) | w.bool(q.Newest, 9))
		w.int(int64(q.Behind))
		w.int(q.Token)
		if q.Who != nil {
			w.who(*q.Who)
		}
	}
	return w.b
}

func decodeRecord(payload []byte) (rec record, ok bool) {
	r := &reader{b: string(payload)}
	rec.At, rec.Reap, rec.Lost, rec.Client = r.int(), r.texts(), r.texts(), r.text()
	if rec.Client != "" {
		rec.Who = r.who()
		rec.Call.Number, rec.Call.Fence = r.uint(), r.uint() != 0
		for range r.count() {
			q := engine.Request{Kind: engine.Kind(r.uint()), ID: r.id(rec.Client), Limit: int(r.int())}
			q.Lease, q.Ticket, q.Waited = r.duration(), r.duration(), r.duration()
			bits := r.uint()
			q.Wait, q.Unfair, q.Strict, q.Detached, q.Pin = bits&1 != 0, bits&2 != 0, bits&4 != 0, bits&8 != 0, bits&16 != 0
			q.Anew, q.Again, q.Mine, q.Newest, q.Behind, q.Token = bits&32 != 0, bits&64 != 0, bits&128 != 0, bits&512 != 0, int(r.int()), r.int()
			if bits&256 != 0 {
				who := r.who()
				q.Who = &who
			}
			rec.Call.Requests = append(rec.Call.Requests, q)
		}
	}
	return rec, !r.bad && len(r.b) == 0
}

func (h *header) encode() []byte {
	w := &writer{}
	w.text(h.Name)
	w.text(h.Boot)
	w.uint(h.ID)
	w.int(h.Base)
	s := h.State
	w.int(int64(s.Limit))
	w.uint(w.bool(s.Pinned, 0) | w.bool(s.Paused, 1))
	w.int(s.Token)
	w.int(s.Keep)
	for _, list := range [][]ledger.Recorded{s.Holders, s.Waiters} {
		w.uint(uint64(len(list)))
		for _, r := range list {
			w.id(r.ID, "")
			w.int(r.End)
			w.int(r.Since)
			w.int(r.Token)
			w.int(int64(r.Slot))
			w.int(r.Place)
			w.int(r.Lease)
			w.int(int64(r.Behind))
			w.uint(w.bool(r.Revoked, 0) | w.bool(r.Detached, 1) | w.bool(r.Insist, 2))
			w.text(r.Via)
			w.text(r.Rival)
			w.who(r.Client)
		}
	}
	w.uint(uint64(len(s.Fences)))
	for client, f := range s.Fences {
		w.text(client)
		w.int(f[0])
		w.int(f[1])
	}
	return w.b
}

func decodeHeader(payload []byte) (h header, ok bool) {
	r := &reader{b: string(payload)}
	h.identity = identity{r.text(), r.text(), r.uint()}
	h.Base = r.int()
	s := &h.State
	s.Limit = int(r.int())
	bits := r.uint()
	s.Pinned, s.Paused, s.Token, s.Keep = bits&1 != 0, bits&2 != 0, r.int(), r.int()
	for _, list := range []*[]ledger.Recorded{&s.Holders, &s.Waiters} {
		for range r.count() {
			e := ledger.Recorded{ID: r.id(""), End: r.int(), Since: r.int(), Token: r.int(), Slot: int(r.int()), Place: r.int(), Lease: r.int(), Behind: int(r.int())}
			bits := r.uint()
			e.Revoked, e.Detached, e.Insist, e.Via, e.Rival, e.Client = bits&1 != 0, bits&2 != 0, bits&4 != 0, r.text(), r.text(), r.who()
			*list = append(*list, e)
		}
	}
	for range r.count() {
		client := r.text()
		if s.Fences == nil {
			s.Fences = map[string][2]int64{}
		}
		s.Fences[client] = [2]int64{r.int(), r.int()}
	}
	return h, !r.bad && len(r.b) == 0
}

// peek reads the identity off the beginning of a log.
func peek(b []byte) (id identity, ok bool) {
	if len(b) < len(magic)+frameHead || string(b[:len(magic)]) != magic {
		return id, false
	}
	r := &reader{b: string(b[len(magic)+frameHead:])}
	id = identity{r.text(), r.text(), r.uint()}
	return id, !r.bad
}
