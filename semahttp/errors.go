package semahttp

import (
	"context"
	"errors"
	"fmt"

	"sema"
)

// limitError adds the limiter's name to an error of sema, which it wraps.
type limitError struct {
	name string
	err  error
}

func (e *limitError) Error() string { return fmt.Sprintf("semahttp: %q: %v", e.name, e.err) }
func (e *limitError) Unwrap() error { return e.err }

// Timeout has url.Error.Timeout report a wait that lasted too long.
func (e *limitError) Timeout() bool { return errors.Is(e.err, context.DeadlineExceeded) }

func invalid(what string, value any, want string) error {
	return &sema.ArgumentError{Package: "semahttp", What: what, Value: value, Want: want}
}
