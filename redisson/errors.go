package redisson

import (
	"errors"
	"fmt"

	"sema/engine"
	"sema/internal/rediserror"
)

var (
	// ErrBusy says that fewer permits were available than asked for:
	// at once for the Try methods, until the context ended for the others
	// (then the context's error is wrapped too). The caller holds nothing.
	ErrBusy = errors.New("redisson: not enough permits available")

	// ErrNotHeld says that a permit id is not held: it was released, its lease
	// ended, or nobody ever issued it.
	ErrNotHeld = errors.New("redisson: permit is not held")

	// ErrNoSemaphore says that the counter is not there: nobody called
	// TrySetPermits, or it was deleted or expired. Nothing has changed.
	ErrNoSemaphore = errors.New("redisson: no such semaphore")

	// ErrTooMany says that the counter would have left the range of Java's int,
	// in which Redisson reads it. Nothing has changed.
	ErrTooMany = errors.New("redisson: permits out of range")

	// ErrWrongType says that a key of this name holds something else than a
	// semaphore's data. Nothing has changed.
	ErrWrongType = errors.New("redisson: key holds no semaphore")

	// ErrClosed says that the Client was closed.
	ErrClosed = errors.New("redisson: client is closed")

	// ErrUnsettled says that Close gave up on operations whose outcome was
	// still unknown: permits may have stayed taken.
	ErrUnsettled = errors.New("redisson: operations left unsettled")
)

// ArgumentError says which value was refused and what would have been taken.
// Nothing was sent to Redis. Its Package is "redisson".
type ArgumentError = engine.ArgumentError

func invalid(what string, value any, want string) error {
	return &ArgumentError{Package: "redisson", What: what, Value: value, Want: want}
}

// UnknownError says that a request was sent, or may have been, and its answer
// never came: the server has either executed it or not.
type UnknownError struct {
	Op   string // what was asked: "acquire", "release", "add permits" …
	Name string // the semaphore

	// Settling tells that the client goes on in the background until the
	// outcome is certain: an acquisition is undone, a release completed. Do
	// not repeat a release then. It is false for every other operation, and
	// for those on a counter when Options.NoReceipts is set: whether the
	// permits have moved has to be found out by other means.
	Settling bool

	Err error // the last failure
}

// Error names the operation, the semaphore and the last failure.
func (e *UnknownError) Error() string {
	return fmt.Sprintf("redisson: %s %q: outcome unknown: %v%s", e.Op, e.Name, e.Err, hint(e.Err))
}

// Unwrap is the last failure.
func (e *UnknownError) Unwrap() error { return e.Err }

// hint is what the user can try, in brackets, to be put behind an error.
func hint(err error) string {
	if h := rediserror.Sort(err).Hint; h != "" {
		return " (" + h + ")"
	}
	return ""
}
