// Package pack lays out values as bytes: numbers as varints, texts with their length in front.
// A layout is one function for both ways. It names each value once, and a Coder appends the value or
// reads it back. There are no fields and no versions: what is kept for long begins with its own.
package pack

import (
	"encoding/binary"
	"errors"
	"maps"
	"slices"
	"time"

	"sema/engine"
)

// ErrDamaged says that bytes are not of the layout.
var ErrDamaged = errors.New("damaged")

// Coder appends values to B, or reads them in the same order. The zero value appends. After the
// first value that cannot be read, all are zero.
type Coder struct {
	B       []byte // what was appended
	Reading bool
	Err     error // of reading

	rest  string            // what is left to read, so that texts need no copies
	seen  map[string]uint64 // appending: the place of each name, from 2 on
	known []string          // reading: the names
}

// Append appends a layout to b.
func Append(b []byte, layout func(*Coder)) []byte {
	c := &Coder{B: b}
	layout(c)
	return c.B
}

// Read reads a layout, of which b is to be all. The error is ErrDamaged, or that of the layout.
func Read(b []byte, layout func(*Coder)) error {
	c := Reader(b)
	if layout(c); c.rest != "" {
		c.Fail(ErrDamaged)
	}
	return c.Err
}

// Reader reads what b begins with.
func Reader(b []byte) *Coder { return &Coder{Reading: true, rest: string(b)} }

// Fail ends the reading. The first failure counts.
func (c *Coder) Fail(err error) {
	c.rest = ""
	if c.Err == nil {
		c.Err = err
	}
}

// Uint is a number.
func (c *Coder) Uint(v *uint64) {
	if !c.Reading {
		c.B = binary.AppendUvarint(c.B, *v)
		return
	}
	*v = 0
	for i := 0; i < len(c.rest) && i < binary.MaxVarintLen64; i++ {
		*v |= uint64(c.rest[i]&0x7f) << (7 * i)
		if c.rest[i] < 0x80 {
			c.rest = c.rest[i+1:]
			return
		}
	}
	*v = 0
	c.Fail(ErrDamaged)
}

// Int is a number that may be negative.
func Int[T ~int | ~int64 | ~uint8](c *Coder, v *T) { From(c, v, 0) }

// From is a number, laid out as its distance from base, which is short for two that are near.
func From[T ~int | ~int64 | ~uint8](c *Coder, v *T, base T) {
	d := int64(*v - base)
	u := uint64(d<<1) ^ uint64(d>>63)
	if c.Uint(&u); c.Reading {
		*v = base + T(int64(u>>1)^-int64(u&1))
	}
}

// Duration is a duration, in microseconds.
func (c *Coder) Duration(v *time.Duration) {
	us := v.Microseconds()
	if Int(c, &us); c.Reading {
		*v = time.Duration(us) * time.Microsecond
	}
}

// Text is a text.
func Text[T ~string](c *Coder, v *T) {
	n := uint64(len(*v))
	c.Uint(&n)
	switch {
	case !c.Reading:
		c.B = append(c.B, *v...)
	case n > uint64(len(c.rest)):
		*v = ""
		c.Fail(ErrDamaged)
	default:
		*v, c.rest = T(c.rest[:n]), c.rest[n:]
	}
}

// Name is a text that recurs: after the first time it takes a number.
func (c *Coder) Name(v *string) {
	place := c.seen[*v] // 0: a new one follows; 1: ""
	if *v == "" {
		place = 1
	}
	switch c.Uint(&place); {
	case place == 0 && c.Reading:
		Text(c, v)
		c.known = append(c.known, *v)
	case place == 0:
		if c.seen == nil {
			c.seen = map[string]uint64{}
		}
		c.seen[*v] = uint64(len(c.seen)) + 2
		Text(c, v)
	case !c.Reading:
	case place == 1:
		*v = ""
	case place-2 < uint64(len(c.known)):
		*v = c.known[place-2]
	default:
		c.Fail(ErrDamaged)
	}
}

// Bits are flags, as one number. The first is its lowest bit.
func (c *Coder) Bits(flags ...*bool) {
	bits := uint64(0)
	for i, set := range flags {
		if *set {
			bits |= 1 << i
		}
	}
	if c.Uint(&bits); c.Reading {
		for i, set := range flags {
			*set = bits&(1<<i) != 0
		}
	}
}

// count is how many values follow, each of which has at least a byte.
func (c *Coder) count(have int) int {
	n := uint64(have)
	if c.Uint(&n); c.Reading && n > uint64(len(c.rest)) {
		c.Fail(ErrDamaged)
		return 0
	}
	return int(n)
}

// List is a list of values, which each lays out.
func List[T any](c *Coder, list *[]T, each func(*T)) {
	n := c.count(len(*list))
	if c.Reading {
		*list = slices.Grow((*list)[:0], min(n, 1000))
	}
	for i := range n {
		if c.Reading {
			*list = append(*list, *new(T))
		}
		each(&(*list)[i])
	}
}

// Texts is a list of texts.
func (c *Coder) Texts(list *[]string) { List(c, list, func(s *string) { Text(c, s) }) }

// Map is a map by name, which is laid out in the order of the names.
func Map[V any](c *Coder, m *map[string]V, each func(*V)) {
	n, names := c.count(len(*m)), slices.Sorted(maps.Keys(*m))
	if c.Reading && n > 0 {
		*m, names = make(map[string]V, min(n, 1000)), make([]string, n)
	}
	for _, name := range names {
		v := (*m)[name]
		c.Name(&name)
		if each(&v); c.Reading {
			(*m)[name] = v
		}
	}
}

// Optional is a value that may be missing.
func Optional[T any](c *Coder, v **T, is func(*T)) {
	there := *v != nil
	if c.Bits(&there); !there {
		return
	}
	if c.Reading {
		*v = new(T)
	}
	is(*v)
}

// ID lays out the name of a permit.
func (c *Coder) ID(id *engine.ID) {
	c.Name(&id.Client)
	c.Uint(&id.Number)
	Int(c, &id.Weight)
	c.Bits(&id.Slot)
}

// Who lays out the description of a client.
func (c *Coder) Who(w *engine.Client) {
	c.Name(&w.Host)
	Int(c, &w.PID)
	c.Name(&w.Label)
	c.Name(&w.Version)
	c.Name(&w.Caller)
	c.Duration(&w.Lease)
}
