package engine

import (
	"errors"
	"fmt"
	"strings"
)

// ErrClosed says that a session or its engine was closed.
var ErrClosed = errors.New("sema: closed")

// Error says that an engine could not be reached or refused a call. Whether
// the step was carried out is unknown unless NotExecuted is set.
type Error struct {
	Op          string // "acquire", "renew", "state", …; "step" from a Session, which knows no callers
	Name        string // of the semaphore; may be empty
	NotExecuted bool   // certainly nothing was changed
	Temporary   bool   // the same call may succeed soon
	Hint        string // what to try; may be empty
	Err         error
}

// Error names the operation, the semaphore and the reason.
func (e *Error) Error() string {
	where := ""
	if e.Name != "" {
		where = fmt.Sprintf(" %q", e.Name)
	}
	return fmt.Sprintf("sema: %s%s: %s", e.Op, where, strings.TrimPrefix(fmt.Sprint(e.Err), "sema: "))
}

// Unwrap is the engine's own error.
func (e *Error) Unwrap() error { return e.Err }
