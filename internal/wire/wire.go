// Package wire encodes the messages between package engines/httpengine and package server.
// A message is a list of numbered fields, as in Protocol Buffers. So either side may be
// the older one: a reader skips unknown fields, and missing fields are zero.
//
// One function for each message defines the numbers of its fields, for writing and for
// reading. A number is never used for another field.
package wire

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"math"
	"strings"
	"time"
)

// ErrMalformed says that bytes are not a valid message.
var ErrMalformed = errors.New("sema: malformed message")

// TokenName reports whether s is a valid name of a token: 1 … 16 lower-case letters and
// digits. Such a name fits into a permit's id.
func TokenName(s string) bool {
	return s != "" && len(s) <= 16 && !strings.ContainsFunc(s, func(r rune) bool { return (r < 'a' || r > 'z') && (r < '0' || r > '9') })
}

// ReadAll is io.ReadAll that appends to b.
func ReadAll(r io.Reader, b []byte) ([]byte, error) {
	all := bytes.NewBuffer(b)
	_, err := all.ReadFrom(r)
	return all.Bytes(), err
}

// The two kinds of fields that are written. Readers skip the other kinds of Protocol
// Buffers.
const (
	kindNumber = 0
	kindBytes  = 2
)

// coder writes the fields of a message, or reads them. For each message one function calls the
// method of each field, in the order of the fields, for writing as for reading.
// Writing changes none of the values, and leaves out zeros.
type coder struct {
	b       []byte // writing: the message; reading: what follows the field
	reading bool
	err     error // ErrMalformed

	// The field that is read next.
	field  uint64 // noField: there is none
	number uint64 // the value of a number
	bytes  []byte // the value of a text or a nested message
	tried  bool   // a description has been run since the field came
	known  string // a text that needs no new memory
}

const noField = math.MaxUint64

// reader makes a coder that reads. Describe the message as long as next is true.
func reader(b []byte, known string) coder {
	c := coder{b: b, reading: true, known: known}
	c.advance()
	return c
}

// next skips a field that the description did not take. It returns false at the end, and
// after an error.
func (c *coder) next() bool {
	if c.tried {
		c.advance()
	}
	c.tried = true
	return c.field != noField
}

// advance reads the next field.
func (c *coder) advance() {
	c.field, c.number, c.bytes, c.tried = noField, 0, nil, false
	if len(c.b) == 0 || c.err != nil {
		return
	}
	tag := c.uvarint()
	switch tag & 7 {
	case kindNumber:
		c.number = c.uvarint()
	case kindBytes:
		c.bytes = c.take(c.uvarint())
	case 1:
		c.take(8)
	case 5:
		c.take(4)
	default:
		c.fail()
	}
	if c.err == nil {
		c.field = tag >> 3
	}
}

func (c *coder) uvarint() uint64 {
	v, n := binary.Uvarint(c.b)
	if n <= 0 {
		c.fail()
		return 0
	}
	c.b = c.b[n:]
	return v
}

func (c *coder) take(n uint64) []byte {
	if n > uint64(len(c.b)) {
		c.fail()
		return nil
	}
	taken := c.b[:n:n]
	c.b = c.b[n:]
	return taken
}

func (c *coder) fail() { c.b, c.field, c.err = nil, noField, ErrMalformed }

// encode writes a number. When reading, ok reports whether the field is there, with the
// value n.
func (c *coder) encode(field, v uint64) (n uint64, ok bool) {
	if c.reading {
		if c.field != field {
			return 0, false
		}
		n = c.number
		c.advance()
		return n, true
	}
	if v != 0 {
		c.b = binary.AppendUvarint(c.b, field<<3|kindNumber)
		c.b = binary.AppendUvarint(c.b, v)
	}
	return 0, false
}

func (c *coder) uint64(field uint64, v *uint64) {
	if n, ok := c.encode(field, *v); ok {
		*v = n
	}
}

// signed writes small numbers of either sign in few bytes.
func (c *coder) signed(field uint64, v int64) (n int64, ok bool) {
	u, ok := c.encode(field, uint64(v<<1)^uint64(v>>63))
	return int64(u>>1) ^ -int64(u&1), ok
}

func (c *coder) int64(field uint64, v *int64) {
	if n, ok := c.signed(field, *v); ok {
		*v = n
	}
}

func (c *coder) time(field uint64, v *time.Duration) { c.int64(field, (*int64)(v)) }

// int reads at most 32 bits, which fit into an int on every system.
func (c *coder) int(field uint64, v *int) {
	n, ok := c.signed(field, int64(*v))
	switch {
	case ok && (n < math.MinInt32 || n > math.MaxInt32):
		c.fail()
	case ok:
		*v = int(n)
	}
}

func small[T ~uint8](c *coder, field uint64, v *T) {
	n, ok := c.encode(field, uint64(*v))
	switch {
	case ok && n > math.MaxUint8:
		c.fail()
	case ok:
		*v = T(n)
	}
}

func (c *coder) bool(field uint64, v *bool) {
	bit := uint64(0)
	if *v {
		bit = 1
	}
	if n, ok := c.encode(field, bit); ok {
		*v = n != 0
	}
}

func (c *coder) text(field uint64, v *string) {
	switch {
	case !c.reading && *v != "":
		c.b = binary.AppendUvarint(c.b, field<<3|kindBytes)
		c.b = binary.AppendUvarint(c.b, uint64(len(*v)))
		c.b = append(c.b, *v...)
	case c.reading && c.field == field:
		if *v = c.known; *v != string(c.bytes) {
			*v = string(c.bytes)
		}
		c.advance()
	}
}

// part is a nested message, also an empty one. describe has no arguments, because they
// would be allocated for each message.
func (c *coder) part(field uint64, describe func()) {
	if c.reading {
		if c.field == field {
			outer := *c
			*c = reader(c.bytes, c.known)
			for c.next() {
				describe()
			}
			failed := c.err != nil
			if *c = outer; failed {
				c.fail()
			}
			c.advance()
		}
		return
	}
	// One byte is reserved for the length, because most messages are shorter than 128 bytes.
	c.b = append(binary.AppendUvarint(c.b, field<<3|kindBytes), 0)
	start := len(c.b)
	describe()
	n := len(c.b) - start
	if n < 0x80 {
		c.b[start-1] = byte(n)
		return
	}
	var length [binary.MaxVarintLen64]byte
	more := binary.PutUvarint(length[:], uint64(n)) - 1
	c.b = append(c.b, length[:more]...)
	copy(c.b[start+more:], c.b[start:start+n])
	copy(c.b[start-1:], length[:more+1])
}

// list is a nested message for each element. An element that is read begins as fresh.
func list[T any](c *coder, field uint64, all *[]T, fresh T, describe func(*T)) {
	if !c.reading {
		for i := range *all {
			c.part(field, func() { describe(&(*all)[i]) })
		}
		return
	}
	for c.field == field {
		*all = append(*all, fresh)
		last := &(*all)[len(*all)-1]
		c.part(field, func() { describe(last) })
	}
}

// optional is a nested message unless v is nil.
func optional[T any](c *coder, field uint64, v **T, describe func(*T)) {
	if c.reading && c.field == field {
		*v = new(T)
	}
	if *v != nil {
		c.part(field, func() { describe(*v) })
	}
}

// Upgrade is the protocol of upgraded connections, which carry calls without the overhead
// of HTTP. Both sides send each message after its length. The client sends Steps. The
// server's messages begin with a byte: KindReply before a Reply, KindProblem before a
// problem in JSON.
const (
	Upgrade     = "sema-calls"
	KindReply   = 0
	KindProblem = 1
)

// Room is how many bytes a buffer has before the message, for WithLength.
const Room = binary.MaxVarintLen64

// WithLength writes the length of the message after Room bytes of b directly before the
// message, and returns both, in the memory of b.
func WithLength(b []byte) []byte {
	var length [Room]byte
	n := binary.PutUvarint(length[:], uint64(len(b)-Room))
	copy(b[Room-n:], length[:n])
	return b[Room-n:]
}
