// Package engine holds what engines, the packages beside them and their users
// share.
package engine

import (
	"fmt"
	"unicode/utf8"
)

// ArgumentError says which value was refused and what would have been taken.
// Nothing was changed and nothing was sent.
type ArgumentError struct {
	Package string // who refused it: "redisson", "classic"; "" means "sema"
	What    string // which value: "name", "limit", "lease", …
	Value   any    // the value as it was given
	Want    string // what it would have to be
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
			end-- // not in the midst of a character
		}
		return fmt.Sprintf("%q…", v[:end])
	}
	return fmt.Sprint(value)
}
