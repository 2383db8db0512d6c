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

// Error names the operation, the semaphore and the reason, and in brackets what to
// try.
func (e *Error) Error() string {
	where, try := "", ""
	if e.Name != "" {
		where = fmt.Sprintf(" %q", e.Name)
	}
	if e.Hint != "" {
		try = " (" + e.Hint + ")"
	}
	return fmt.Sprintf("sema: %s%s: %s%s", e.Op, where, strings.TrimPrefix(fmt.Sprint(e.Err), "sema: "), try)
}

// WithoutHint is the text of err without what to try, for those who show that
// elsewhere. hint is that of an Error in err; "": there is none.
func WithoutHint(err error) (text, hint string) {
	text = err.Error()
	if failure := (*Error)(nil); errors.As(err, &failure) && failure.Hint != "" {
		return strings.Replace(text, " ("+failure.Hint+")", "", 1), failure.Hint
	}
	return text, ""
}

// Unwrap is the engine's own error.
func (e *Error) Unwrap() error { return e.Err }
