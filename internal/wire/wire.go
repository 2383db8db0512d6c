// Package wire encodes the messages between package engines/httpengine and package server.
// A message is a list of numbered fields, as in Protocol Buffers. So either side may be
// the older one: a reader skips unknown fields, and missing fields are zero.
//
// The functions that write the fields define their numbers. A number is never used for
// another field.
package wire

import (
	"encoding/binary"
	"errors"
	"io"
	"math"
	"slices"
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
	for {
		if len(b) == cap(b) {
			b = slices.Grow(b, 1024)
		}
		n, err := r.Read(b[len(b):cap(b)])
		b = b[:len(b)+n]
		if err != nil {
			if err == io.EOF {
				err = nil
			}
			return b, err
		}
	}
}

// The two kinds of fields that are written. Readers skip the other kinds of Protocol
// Buffers.
const (
	kindNumber = 0
	kindBytes  = 2
)

func putNumber(b []byte, field int, v uint64) []byte {
	if v == 0 {
		return b
	}
	b = binary.AppendUvarint(b, uint64(field<<3|kindNumber))
	return binary.AppendUvarint(b, v)
}

func putInt(b []byte, field int, v int64) []byte {
	return putNumber(b, field, uint64(v<<1)^uint64(v>>63))
}

func putTime(b []byte, field int, d time.Duration) []byte { return putInt(b, field, int64(d)) }

func putBool(b []byte, field int, v bool) []byte {
	if !v {
		return b
	}
	return append(binary.AppendUvarint(b, uint64(field<<3|kindNumber)), 1)
}

func putText(b []byte, field int, s string) []byte {
	if s == "" {
		return b
	}
	b = binary.AppendUvarint(b, uint64(field<<3|kindBytes))
	b = binary.AppendUvarint(b, uint64(len(s)))
	return append(b, s...)
}

// putPart appends a nested message, also an empty one. It reserves one byte for the
// length, because most messages are shorter than 128 bytes.
func putPart(b []byte, field int, write func([]byte) []byte) []byte {
	b = append(binary.AppendUvarint(b, uint64(field<<3|kindBytes)), 0)
	start := len(b)
	b = write(b)
	n := len(b) - start
	if n < 0x80 {
		b[start-1] = byte(n)
		return b
	}
	var length [binary.MaxVarintLen64]byte
	more := binary.PutUvarint(length[:], uint64(n)) - 1
	b = append(b, length[:more]...)
	copy(b[start+more:], b[start:start+n])
	copy(b[start-1:], length[:more+1])
	return b
}

// fields reads the fields of a message.
type fields struct {
	rest   []byte
	field  uint64
	number uint64 // the value of a number
	bytes  []byte // the value of a text or a nested message
	err    error
}

// next reads the next field. It returns false at the end, and after an error.
func (f *fields) next() bool {
	if len(f.rest) == 0 || f.err != nil {
		return false
	}
	tag := f.uvarint()
	f.field, f.number, f.bytes = tag>>3, 0, nil
	switch tag & 7 {
	case kindNumber:
		f.number = f.uvarint()
	case kindBytes:
		if n := f.uvarint(); n <= uint64(len(f.rest)) {
			f.bytes, f.rest = f.rest[:n:n], f.rest[n:]
		} else {
			f.err = ErrMalformed
		}
	case 1:
		f.skip(8)
	case 5:
		f.skip(4)
	default:
		f.err = ErrMalformed
	}
	return f.err == nil
}

func (f *fields) uvarint() uint64 {
	v, n := binary.Uvarint(f.rest)
	if n <= 0 {
		f.err = ErrMalformed
		f.rest = nil
		return 0
	}
	f.rest = f.rest[n:]
	return v
}

func (f *fields) skip(n int) {
	if len(f.rest) < n {
		f.err = ErrMalformed
		return
	}
	f.rest = f.rest[n:]
}

func (f *fields) int64() int64 { return int64(f.number>>1) ^ -int64(f.number&1) }

func (f *fields) time() time.Duration { return time.Duration(f.int64()) }

// int is a number of at most 32 bits, which fits into an int on every system.
func (f *fields) int() int {
	v := f.int64()
	if v < math.MinInt32 || v > math.MaxInt32 {
		f.err = ErrMalformed
		return 0
	}
	return int(v)
}

func (f *fields) byte() uint8 {
	if f.number > math.MaxUint8 {
		f.err = ErrMalformed
	}
	return uint8(f.number)
}

func (f *fields) bool() bool { return f.number != 0 }

func (f *fields) text() string { return string(f.bytes) }

// textReusing is text. If it equals was, it needs no new memory.
func (f *fields) textReusing(was string) string {
	if was == string(f.bytes) {
		return was
	}
	return f.text()
}

// nested returns the fields of a nested message. After the last of them, the caller passes
// the result to finish. A callback for each field would cost an allocation for each message.
func (f *fields) nested() fields { return fields{rest: f.bytes} }

// finish takes over the error of a nested message.
func (f *fields) finish(nested fields) {
	if nested.err != nil {
		f.err = nested.err
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
