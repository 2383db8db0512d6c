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
	channel  string // what waiters listen on
	receipts string // ours alone; Redisson does not know it
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

// sameSlot tells whether a cluster keeps all keys in one slot, without which no
// script can touch them together.
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

func checkName(name string, cluster bool) error {
	switch {
	case name == "":
		return invalid("name", name, "must not be empty")
	case len(name) > maxName:
		return invalid("name", name[:32]+"…", "must not be longer than 1024 bytes")
	case !utf8.ValidString(name):
		return invalid("name", name, "must be valid UTF-8, as Java's strings are")
	case cluster && !newKeys(name, "").sameSlot():
		return invalid("name", name, "its braces put Redisson's keys into different slots of the cluster")
	}
	return nil
}
