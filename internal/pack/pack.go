// Package pack writes values into bytes and reads them back: numbers as varints,
// texts with their length in front. It has no fields and no versions; what is kept
// for long begins with its own.
package pack

import (
	"encoding/binary"
	"time"

	"sema/engine"
)

// Writer appends values to B.
type Writer struct{ B []byte }

// Uint appends a number.
func (w *Writer) Uint(v uint64) { w.B = binary.AppendUvarint(w.B, v) }

// Int appends a number that may be negative.
func (w *Writer) Int(v int64) { w.B = binary.AppendVarint(w.B, v) }

// Duration appends a duration, in microseconds.
func (w *Writer) Duration(d time.Duration) { w.Int(d.Microseconds()) }

// Text appends a text.
func (w *Writer) Text(s string) { w.Uint(uint64(len(s))); w.B = append(w.B, s...) }

// Texts appends a list of texts.
func (w *Writer) Texts(list []string) {
	w.Uint(uint64(len(list)))
	for _, s := range list {
		w.Text(s)
	}
}

// Bits appends flags as one number, the first as its lowest bit.
func (w *Writer) Bits(flags ...bool) {
	bits := uint64(0)
	for i, set := range flags {
		if set {
			bits |= 1 << i
		}
	}
	w.Uint(bits)
}

// ID appends a permit's name; most are of the client whose step it is.
func (w *Writer) ID(id engine.ID, client string) {
	w.Bits(id.Slot, id.Client != client)
	if id.Client != client {
		w.Text(id.Client)
	}
	w.Uint(id.Number)
	w.Int(int64(id.Weight))
}

// Who appends the description of a client.
func (w *Writer) Who(c engine.Client) {
	w.Text(c.Host)
	w.Int(int64(c.PID))
	w.Text(c.Label)
	w.Text(c.Version)
	w.Text(c.Caller)
	w.Duration(c.Lease)
}

// Reader takes values off B, in the order in which they were appended. After the
// first that is not there, all are zero and Bad is set.
type Reader struct {
	B   string // so that the texts need no copies
	Bad bool
}

// Fail says that the bytes make no sense.
func (r *Reader) Fail() {
	r.B, r.Bad = "", true
}

// Whole reports whether all was there, and nothing else.
func (r *Reader) Whole() bool { return !r.Bad && len(r.B) == 0 }

// Uint reads a number.
func (r *Reader) Uint() (v uint64) {
	for i := 0; i < len(r.B) && i < binary.MaxVarintLen64; i++ {
		v |= uint64(r.B[i]&0x7f) << (7 * i)
		if r.B[i] < 0x80 {
			r.B = r.B[i+1:]
			return v
		}
	}
	r.Fail()
	return 0
}

// Int reads a number that may be negative.
func (r *Reader) Int() int64 {
	v := r.Uint()
	return int64(v>>1) ^ -int64(v&1)
}

// Duration reads a duration.
func (r *Reader) Duration() time.Duration { return time.Duration(r.Int()) * time.Microsecond }

// Text reads a text.
func (r *Reader) Text() string {
	n := r.Uint()
	if n > uint64(len(r.B)) {
		r.Fail()
		return ""
	}
	s := r.B[:n]
	r.B = r.B[n:]
	return s
}

// Count reads how many values follow, each of which has at least a byte.
func (r *Reader) Count() int {
	n := r.Uint()
	if n > uint64(len(r.B)) {
		r.Fail()
		return 0
	}
	return int(n)
}

// Texts reads a list of texts.
func (r *Reader) Texts() []string {
	var list []string
	for range r.Count() {
		list = append(list, r.Text())
	}
	return list
}

// Bits reads flags.
func (r *Reader) Bits(flags ...*bool) {
	bits := r.Uint()
	for i, set := range flags {
		*set = bits&(1<<i) != 0
	}
}

// ID reads a permit's name.
func (r *Reader) ID(client string) (id engine.ID) {
	other := false
	r.Bits(&id.Slot, &other)
	if id.Client = client; other {
		id.Client = r.Text()
	}
	id.Number, id.Weight = r.Uint(), int(r.Int())
	return id
}

// Who reads the description of a client.
func (r *Reader) Who() engine.Client {
	return engine.Client{Host: r.Text(), PID: int(r.Int()), Label: r.Text(), Version: r.Text(), Caller: r.Text(), Lease: r.Duration()}
}
