package engine

import (
	"fmt"
	"math"
	"strings"
	"time"
	"unicode/utf8"
)

// The ranges of names and limits.
const (
	MaxLimit = math.MaxInt32 // of a limit, and so of a weight
	MaxName  = 255           // bytes in a name
	MaxKey   = 255           // bytes in a key
	MaxLabel = 255           // bytes in a label
	MinLease = 100 * time.Millisecond
	MaxLease = 366 * 24 * time.Hour
)

// ArgumentError says which value was refused and which values are allowed.
// Nothing was changed and nothing was sent.
type ArgumentError struct {
	Package string // the package that refused it: "redisson", "classic"; "" means "sema"
	What    string // the value's name: "name", "limit", "lease", …
	Value   any    // the refused value
	Want    string // the allowed values
}

// Error is "PACKAGE: WHAT VALUE: want WANT". Text is quoted and at most 60 of
// its bytes are shown; a duration reads as 1m30s.
func (e *ArgumentError) Error() string {
	who := e.Package
	if who == "" {
		who = "sema"
	}
	return fmt.Sprintf("%s: %s %s: want %s", who, e.What, show(e.Value), e.Want)
}

// shown is how many bytes of a text an error shows.
const shown = 60

func show(value any) string {
	switch v := value.(type) {
	case nil:
		return "nil"
	case string:
		if len(v) <= shown {
			return fmt.Sprintf("%q", v)
		}
		end := shown
		for end > shown-utf8.UTFMax && !utf8.RuneStart(v[end]) {
			end-- // cut between characters
		}
		return fmt.Sprintf("%q…", v[:end])
	}
	return fmt.Sprint(value)
}

// ValidateName checks the name of a semaphore: 1 … MaxName bytes of UTF-8
// without control characters. The error is an *ArgumentError.
func ValidateName(name string) error {
	if name == "" {
		return &ArgumentError{What: "name", Value: name, Want: "a name that is not empty"}
	}
	return ValidateText("name", name, MaxName)
}

// ValidateLimit checks the limit of a semaphore: 1 … MaxLimit. The error is an
// *ArgumentError.
func ValidateLimit(limit int) error {
	if limit == 0 {
		return &ArgumentError{What: "limit", Value: 0, Want: fmt.Sprintf("1 … %d, or a pause, which stops all grants", MaxLimit)}
	}
	return ValidateRange("", "limit", limit, 1, MaxLimit)
}

// ValidateRange checks that value is in the range least … most. The error is an
// *ArgumentError about what, with Package set to pkg ("" means "sema").
func ValidateRange[T int | time.Duration](pkg, what string, value, least, most T) error {
	if value < least || value > most {
		return &ArgumentError{Package: pkg, What: what, Value: value, Want: fmt.Sprintf("%v … %v", least, most)}
	}
	return nil
}

// ValidateText checks that s has at most most bytes and is UTF-8 without control
// characters. The controls of bidirectional text count as such. The error is an
// *ArgumentError about what.
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

// isControl covers C0, DEL, C1, the line separators and the controls of text
// direction. They would break listings and logs, or make one name look like another.
func isControl(r rune) bool {
	return r < 0x20 || r >= 0x7f && r < 0xa0 || r >= '\u2028' && r <= '\u202e' || r >= '\u2066' && r <= '\u2069'
}
