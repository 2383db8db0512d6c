// Package wire is what travels between package engine/httpengine and package
// server, as bytes. Each message is a list of fields, each with its number, as
// in Protocol Buffers; so either side may be older than the other: fields that a
// reader does not know are passed over, and those that are missing are zero.
//
// The numbers are in the functions that write them. They are never used again
// for something else.
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

// ErrMalformed says that bytes are no message.
var ErrMalformed = errors.New("sema: malformed message")

// TokenName reports whether a token can have this name: 1 … 16 lower-case letters
// and digits. It is short enough that a permit's id has room for it.
func TokenName(s string) bool {
	return s != "" && len(s) <= 16 && !strings.ContainsFunc(s, func(r rune) bool { return (r < 'a' || r > 'z') && (r < '0' || r > '9') })
}

// ReadAll is io.ReadAll into a slice that is there.
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

// The two kinds of fields that are written. Readers pass over the others of
// Protocol Buffers.
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

// putPart appends a message within a message, also an empty one. Most are
// shorter than 128 bytes, so a byte is kept free for the length.
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

// fields goes through the fields of a message.
type fields struct {
	rest   []byte
	field  uint64
	number uint64 // of a number
	bytes  []byte // of text, or of a message within
	err    error
}

// next reads the next field; false at the end, or when err is set.
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

// int is a number that fits into 32 bits, so that it is the same everywhere.
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

// textAgain is text that is often the same as it was: then it takes no memory.
func (f *fields) textAgain(was string) string {
	if was == string(f.bytes) {
		return was
	}
	return f.text()
}

// within are the fields of a message within. When they have been gone through, left says
// so. A function that goes through them would cost each message an allocation.
func (f *fields) within() fields { return fields{rest: f.bytes} }

func (f *fields) left(within fields) {
	if within.err != nil {
		f.err = within.err
	}
}

// Upgrade is the protocol of connections that carry calls without HTTP around
// each. Either side sends messages with their lengths in front. Those of the
// client are Steps. Those of the server begin with a byte: KindReply before a
// Reply, KindProblem before a problem as JSON.
const (
	Upgrade     = "sema-calls"
	KindReply   = 0
	KindProblem = 1
)
