package redisson

import (
	"strings"
	"unicode/utf8"
)

// maxName bounds a semaphore's name in bytes. Redis would take far more; a name
// that long is a mistake.
const maxName = 1024

// keys are all names that belong to one semaphore, as Redisson derives them.
type keys struct {
	counter  string // available permits
	timeouts string // held permits of the expirable kind
	channel  string // where waiters listen
	receipts string // only this package uses it; Redisson does not know it
}

// newKeys derives the names. Redisson's rule asks only whether the name has an
// opening brace anywhere, not whether that makes a hash tag.
func newKeys(name, handle string) keys {
	wrapped := name
	if !strings.Contains(name, "{") {
		wrapped = "{" + name + "}"
	}
	return keys{
		counter:  name,
		timeouts: wrapped + ":timeout",
		channel:  "redisson_sc:" + wrapped,
		receipts: wrapped + ":receipts:" + handle,
	}
}

// sameSlot tells whether a cluster keeps all keys in one slot. A script can only
// use keys of one slot.
func (k keys) sameSlot() bool {
	tag := hashTag(k.counter)
	return hashTag(k.timeouts) == tag && hashTag(k.channel) == tag && hashTag(k.receipts) == tag
}

// hashTag is the part of a key that a cluster hashes: what stands between the
// first "{" and the next "}" unless that is empty, else the whole key.
func hashTag(key string) string {
	if _, rest, ok := strings.Cut(key, "{"); ok {
		if tag, _, ok := strings.Cut(rest, "}"); ok && tag != "" {
			return tag
		}
	}
	return key
}

// redissonHashTag is hashTag as Redisson's cluster client works it out. It looks
// for the first "}" in the whole key, where the server looks behind the "{".
func redissonHashTag(key string) string {
	start, end := strings.Index(key, "{"), strings.Index(key, "}")
	if start >= 0 && start+1 < end {
		return key[start+1 : end]
	}
	return key
}

func checkName(name string, cluster bool) error {
	switch {
	case name == "", len(name) > maxName:
		return invalid("name", name, "1 to 1024 bytes")
	case !utf8.ValidString(name):
		return invalid("name", name, "valid UTF-8, as Java's strings are")
	case !cluster:
		return nil
	}
	k := newKeys(name, "")
	switch {
	case !k.sameSlot():
		return invalid("name", name, "a name whose braces leave all of Redisson's keys in one slot of the cluster")
	case redissonHashTag(k.channel) != hashTag(k.channel):
		// Redisson asks the wrong node for the subscription, so nothing ever
		// wakes its waiters.
		return invalid("name", name, `a name without "}" before its first "{", with which Redisson mistakes the slot in the cluster`)
	}
	return nil
}
