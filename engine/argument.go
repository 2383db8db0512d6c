package engine

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"unicode/utf8"
)

// The ranges of names and limits.
const (
	MaxLimit = math.MaxInt32 // of a limit, and so of a weight
	MaxName  = 255           // bytes in a name
)

// ArgumentError says which value was refused and what would have been taken.
// Nothing was changed.
type ArgumentError struct {
	Package string // that refuses it; "" means sema
	What    string // "name", "limit", "weight", "lease", …
	Value   any
	Want    string
}

// Error names the value, in at most 60 bytes of its own.
func (e *ArgumentError) Error() string {
	of := e.Package
	if of == "" {
		of = "sema"
	}
	value := fmt.Sprint(e.Value)
	if s, ok := e.Value.(string); ok {
		value = abbreviate(s)
	}
	return fmt.Sprintf("%s: %s %s: want %s", of, e.What, value, e.Want)
}

// abbreviate keeps a wrong value from flooding a terminal or a log.
func abbreviate(s string) string {
	const most = 60
	if len(s) > most {
		return fmt.Sprintf("%q… (%d bytes)", s[:most], len(s))
	}
	return strconv.Quote(s)
}

// ValidateName says whether a semaphore can have this name: 1 … MaxName bytes
// of UTF-8 without control characters. The error is an *ArgumentError.
func ValidateName(name string) error {
	if name == "" {
		return &ArgumentError{What: "name", Value: name, Want: "a name that is not empty"}
	}
	return ValidateText("name", name, MaxName)
}

// ValidateLimit says whether a semaphore can have this limit: 1 … MaxLimit.
// The error is an *ArgumentError.
func ValidateLimit(limit int) error {
	if limit < 1 || limit > MaxLimit {
		return &ArgumentError{What: "limit", Value: limit, Want: fmt.Sprintf("1 … %d", MaxLimit)}
	}
	return nil
}

// ValidateText says whether s has at most so many bytes and is UTF-8 without
// control characters. The error is an *ArgumentError about what.
func ValidateText(what, s string, most int) error {
	switch {
	case len(s) > most:
		return &ArgumentError{What: what, Value: s, Want: fmt.Sprintf("at most %d bytes", most)}
	case !utf8.ValidString(s):
		return &ArgumentError{What: what, Value: s, Want: "valid UTF-8"}
	case strings.ContainsFunc(s, isControl):
		return &ArgumentError{What: what, Value: s, Want: "no control characters"}
	}
	return nil
}

// isControl covers C0, DEL, C1 and the line separators, which would break
// listings and logs.
func isControl(r rune) bool {
	return r < 0x20 || r >= 0x7f && r < 0xa0 || r == '\u2028' || r == '\u2029'
}
