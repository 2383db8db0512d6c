// Package class has the sentinel errors of packages sema and engine. Each is a class: an
// error of a call matches exactly one of them, or one of the error types of package sema.
package class

import (
	"context"
	"errors"
	"slices"
	"strings"
)

// The classes. Packages sema and engine export them, and say what they mean.
var (
	ErrBusy     = errors.New("sema: no permit available")
	ErrEngine   = errors.New("sema: the engine is out of reach, or refused")
	ErrClosed   = errors.New("sema: closed")
	ErrNotFound = errors.New("sema: no such semaphore")
	ErrInUse    = errors.New("sema: semaphore is in use")
	ErrLost     = errors.New("sema: permit lost")
	ErrReleased = errors.New("sema: permit already released")
)

var all = []error{ErrBusy, ErrEngine, ErrClosed, ErrNotFound, ErrInUse, ErrLost, ErrReleased}

// Of lists the classes that err matches.
func Of(err error) (classes []error) {
	for _, c := range all {
		if errors.Is(err, c) {
			classes = append(classes, c)
		}
	}
	return classes
}

// Join is errors.Join, but its text is one line, and an error that is in another one is left
// out.
func Join(errs ...error) error {
	var kept joined
	for _, err := range errs {
		if err == nil || slices.ContainsFunc(kept, func(k error) bool { return errors.Is(k, err) }) {
			continue
		}
		kept = slices.DeleteFunc(kept, func(k error) bool { return errors.Is(err, k) })
		kept = append(kept, err)
	}
	switch len(kept) {
	case 0:
		return nil
	case 1:
		return kept[0]
	}
	return kept
}

type joined []error

func (j joined) Error() string {
	texts := make([]string, len(j))
	for i, err := range j {
		texts[i] = err.Error()
	}
	return strings.Join(texts, "; ")
}

// Unwrap implements errors.Is and errors.As.
func (j joined) Unwrap() []error { return j }

// Hide makes an error for another error's Unwrap. errors.Is and errors.As find in it what
// they find in err, except classes, errors that wrap a class, and the errors of contexts.
// Its text is that of err. Hide(nil) is nil.
func Hide(err error) error {
	if err == nil {
		return nil
	}
	return hidden{err}
}

type hidden struct{ err error }

func (h hidden) Error() string { return h.err.Error() }

// Is implements errors.Is.
func (h hidden) Is(target error) bool {
	if target == context.Canceled || target == context.DeadlineExceeded || slices.ContainsFunc(all, func(c error) bool { return errors.Is(target, c) }) {
		return false
	}
	return errors.Is(h.err, target)
}

// As implements errors.As.
func (h hidden) As(target any) bool { return errors.As(h.err, target) }
