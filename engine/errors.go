package engine

import (
	"errors"
	"fmt"
	"strings"

	"sema/internal/class"
)

var (
	// ErrClosed says that a session or its engine was closed.
	ErrClosed = class.ErrClosed

	// ErrEngine says that an engine could not be reached, did not answer, or refused a
	// call. An *Error in it, found with errors.As, has the details.
	ErrEngine = class.ErrEngine
)

// Error says that an engine could not be reached or refused a call. Whether
// the step was carried out is unknown unless NotExecuted is set. It is an ErrEngine; with
// ErrClosed itself as its Err it is an ErrClosed instead.
type Error struct {
	Op          string // "acquire", "renew", "state", …; "step" from a Session, which knows no callers
	Name        string // of the semaphore; may be empty
	NotExecuted bool   // it is certain that nothing was changed
	Temporary   bool   // the same call may succeed soon
	Busy        bool   // it had no answer or no place in time: the engine may only be busy
	Hint        string // what to try; may be empty
	Err         error
}

// Error names the operation, the semaphore and the reason, and the hint in brackets.
func (e *Error) Error() string {
	where, try := "", ""
	if e.Name != "" {
		where = fmt.Sprintf(" %q", e.Name)
	}
	if e.Hint != "" {
		try = " (" + e.Hint + ")"
	}
	reason := strings.TrimSuffix(strings.TrimPrefix(fmt.Sprint(e.Err), "sema: "), ".") // more may follow
	return fmt.Sprintf("sema: %s%s: %s%s", e.Op, where, reason, try)
}

// WithoutHint splits the text of err, for programs that show the hint elsewhere. hint
// is the Hint of an *Error in err, or "".
func WithoutHint(err error) (text, hint string) {
	text = err.Error()
	if failure := (*Error)(nil); errors.As(err, &failure) && failure.Hint != "" {
		return strings.Replace(text, " ("+failure.Hint+")", "", 1), failure.Hint
	}
	return text, ""
}

// Is implements errors.Is.
func (e *Error) Is(target error) bool {
	if e.Err == ErrClosed {
		return target == ErrClosed
	}
	return target == ErrEngine
}

// Unwrap gives errors.Is and errors.As access to Err, but hides the errors of contexts
// and package sema's sentinel errors: a driver's timeout is not its caller's deadline.
func (e *Error) Unwrap() error { return class.Hide(e.Err) }
