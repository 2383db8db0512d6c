// Package tree says how the keys of a snapshot lie above and below each other.
package tree

import (
	"strings"

	"sema/engine"
)

// Level is how deep a key lies, 1 … engine.MaxDepth: 1 for one name, and for the callers without a key.
// The callers of a key itself lie one level below it.
func Level(key engine.Key) int { return 1 + strings.Count(string(key), engine.KeySeparator) }

// Above is the key that a key lies below; "" at level 1.
func Above(key engine.Key) engine.Key {
	return key[:max(0, strings.LastIndex(string(key), engine.KeySeparator))]
}

// Own reports whether a key stands for the callers of the key above without a further name.
func Own(key engine.Key) bool { return strings.HasSuffix(string(key), engine.KeySeparator) }

// In reports whether callers of one key count for another: for the same, and for each above it. They
// count for a key's own callers if they have no further name.
func In(callers, key engine.Key) bool {
	if key == "" || Own(key) {
		return callers == Above(key)
	}
	return callers == key || strings.HasPrefix(string(callers), string(key)+engine.KeySeparator)
}

// InTurn reports for each key of a snapshot whether it waits for the keys beside it, or for free weight
// above it. It does not if nobody waits, if it is full, or if all that wait below it do so at their caps.
func InTurn(keys []engine.KeyState) []bool {
	turn, deepest := make([]bool, len(keys)), 1
	for i, k := range keys {
		turn[i] = k.Waiting > 0 && !k.Full
		deepest = max(deepest, Level(k.Key))
	}
	for level := deepest; level > 1; level-- {
		some := map[engine.Key]bool{} // of keys with waiters below: whether one below is in turn
		for i, k := range keys {
			if k.Waiting > 0 && Level(k.Key) == level {
				some[Above(k.Key)] = some[Above(k.Key)] || turn[i]
			}
		}
		for i, k := range keys {
			if below, ok := some[k.Key]; ok && Level(k.Key) == level-1 {
				turn[i] = turn[i] && below
			}
		}
	}
	return turn
}
