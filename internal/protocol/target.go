package protocol

import (
	"strings"

	"sema/engine"
)

// Target is what a permit counts for.
type Target struct {
	Key   engine.Key   // "": a semaphore without keys
	Takes engine.Pools // what the permit takes of pools
}

// targetSeparator is between the parts of a text. Neither has control characters.
const targetSeparator = "\x02"

// Text is a target as one text, for the engines that send or store one where they have keys.
func (t Target) Text() string {
	if t.Takes == "" {
		return string(t.Key)
	}
	return string(t.Key) + targetSeparator + string(t.Takes)
}

// ParseTarget is the target of a text.
func ParseTarget(text string) Target {
	key, takes, _ := strings.Cut(text, targetSeparator)
	return Target{engine.Key(key), engine.Pools(takes)}
}

// ClassText is a key and a set of pools as one text, by which engines order those who wait. Without a set it is the key.
func ClassText(set, key string) string {
	if set == "" {
		return key
	}
	return set + targetSeparator + key
}

// CutClass is the key and the set of a text of ClassText.
func CutClass(text string) (set, key string) {
	if set, key, found := strings.Cut(text, targetSeparator); found {
		return set, key
	}
	return "", text
}

// Validate checks a target. Its text has at most engine.MaxKey bytes, so that each engine carries it where it carries
// keys. The error is an *engine.ArgumentError.
func (t Target) Validate() error {
	if len(t.Text()) > engine.MaxKey && t.Takes != "" {
		return &engine.ArgumentError{What: "key", Value: t.Key.String() + " with " + string(t.Takes), Want: "at most 255 bytes, with what is taken of pools"}
	}
	if err := t.Key.Validate(); err != nil {
		return err
	}
	if strings.ContainsAny(string(t.Takes), "/+") {
		return &engine.ArgumentError{What: "takes", Value: string(t.Takes), Want: "how much of each pool, and no rate"}
	}
	return t.Takes.Validate(1)
}
