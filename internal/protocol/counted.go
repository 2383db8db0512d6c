package protocol

import (
	"strings"

	"sema/engine"
)

// takesSeparator is between a key and what is taken of pools. Neither has control characters.
const takesSeparator = "\x02"

// Counted is Request.Key for a permit of a key that takes some of pools. Together they have at most
// engine.MaxKey bytes, so that each engine carries them where it carries keys.
func Counted(key string, takes engine.Pools) string {
	if takes == "" {
		return key
	}
	return key + takesSeparator + string(takes)
}

// SplitCounted is a Request.Key as the key, and what is taken of pools.
func SplitCounted(counted string) (key string, takes engine.Pools) {
	key, text, _ := strings.Cut(counted, takesSeparator)
	return key, engine.Pools(text)
}

// ValidateCounted checks a Request.Key. The error is an *engine.ArgumentError.
func ValidateCounted(counted string) error {
	key, takes := SplitCounted(counted)
	if Counted(key, takes) != counted {
		return &engine.ArgumentError{What: "key", Value: counted, Want: "a key without control characters"}
	}
	if len(counted) > engine.MaxKey && takes != "" {
		return &engine.ArgumentError{What: "key", Value: engine.Key(key).String() + " with " + string(takes), Want: "at most 255 bytes, with what is taken of pools"}
	}
	if err := engine.Key(key).Validate(); err != nil {
		return err
	}
	return takes.Validate(1)
}
