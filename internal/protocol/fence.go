package protocol

import (
	"errors"
	"slices"

	"sema/engine"
)

// Fence keeps late copies of a session's calls out, for an engine in whose process the
// session's calls come in order: behind it no copy can overtake a call. So such an engine
// stores no fences, and a fence ends with its session. The zero value is ready for use.
type Fence struct{ least uint64 }

var errLate = &engine.Error{Op: "step", NotExecuted: true, Temporary: true, Err: errors.New("a later call of this session came first")}

// Pass fails if a call is late, see Call.Fence. A call that passes cannot be late any more: its
// number is 0 from now on.
func (f *Fence) Pass(c *Call) error {
	if c.Number < f.least {
		return errLate
	}
	if c.Fence {
		f.least = c.Number
	}
	if slices.ContainsFunc(c.Requests, func(r Request) bool { return r.Acts() }) {
		f.least = c.Number + 1
	}
	c.Number = 0
	return nil
}
