package wire

import (
	"sema/engine"
	"sema/internal/protocol"
)

// appendReport uses the fields 18 and 19 of a request: the report of a session, and that of
// a controller.
func appendReport(b []byte, r *protocol.Request) []byte {
	if t := r.Totals; t != nil {
		b = putPart(b, 18, func(b []byte) []byte {
			return putInt(putInt(putInt(b, 1, t.Good), 2, t.Bad), 3, t.Waited)
		})
	}
	if a := r.Auto; a != nil {
		b = putPart(b, 19, func(b []byte) []byte {
			return putInt(putInt(putInt(b, 1, int64(a.Min)), 2, int64(a.Max)), 3, int64(a.Bad))
		})
	}
	return b
}

// readReport decodes one of the two fields.
func (f *fields) readReport(r *protocol.Request) {
	if f.field == 18 {
		t := &protocol.Totals{}
		r.Totals = t
		in := f.nested()
		for in.next() {
			switch in.field {
			case 1:
				t.Good = in.int64()
			case 2:
				t.Bad = in.int64()
			case 3:
				t.Waited = in.int64()
			}
		}
		f.finish(in)
		return
	}
	a := &engine.Auto{}
	r.Auto = a
	in := f.nested()
	for in.next() {
		switch in.field {
		case 1:
			a.Min = in.int()
		case 2:
			a.Max = in.int()
		case 3:
			a.Bad = in.int()
		}
	}
	f.finish(in)
}
