package redisengine

import (
	"slices"
	"strings"
)

// The data model at one glance. Every key of a semaphore begins with
// sema:{name}: so that all of them, and the channels, live in one cluster slot.
// Options.Prefix may replace "sema:". lua/words.lua says how values are packed.
//
//	state    hash    limit, weight held, …; and each permit and ticket
//	holders  zset    permit id -> end of its lease in microseconds
//	waiters  zset    permit id -> place in the queue
//	slots    zset    permit id -> slot
//	fences   hash    client -> smallest number of a call that still counts
//	keepers  hash    client -> what it may do with released permits, and until when
//	turn     zset    of a semaphore with keys: those in turn, and those at their cap
//	keys     hash    key -> what it holds, and may hold
//	lines    zset    the tickets of the keys
//	reports  hash    client -> how its holds have gone
//	client:… string  host, pid and label of a client
//	inbox:…  channel notifications for a client
type keys struct {
	prefix string    // sema:{name}:
	main   [6]string // in the order of the scripts' KEYS
	keyed  [3]string // further ones of a semaphore with keys

	reports string // of a semaphore with reports
}

// defaultPrefix begins all keys and channels.
const defaultPrefix = "sema:"

// Redis ends a hash tag at the first closing brace, and ignores an empty tag.
// So braces in a name are escaped, and the escape character itself.
var (
	escape   = strings.NewReplacer("%", "%25", "{", "%7B", "}", "%7D")
	unescape = strings.NewReplacer("%25", "%", "%7B", "{", "%7D", "}")
)

func keysOf(prefix, name string) keys {
	k := keys{prefix: prefix + "{" + escape.Replace(name) + "}:"}
	for i, kind := range []string{"state", "holders", "waiters", "slots", "fences", "keepers"} {
		k.main[i] = k.prefix + kind
	}
	for i, kind := range []string{"turn", "keys", "lines"} {
		k.keyed[i] = k.prefix + kind
	}
	k.reports = k.prefix + "reports"
	return k
}

func (k *keys) state() string { return k.main[0] }

// all returns the keys in the order of state.lua.
func (k *keys) all() []string {
	return append(slices.Clone(k.main[:3]), k.keyed[1], k.keyed[2], k.reports)
}

func (k *keys) client(client string) string { return k.prefix + "client:" + client }
func (k *keys) inbox(client string) string  { return k.prefix + "inbox:" + client }

// globs escapes the special characters of a SCAN pattern.
var globs = strings.NewReplacer(`\`, `\\`, "*", `\*`, "?", `\?`, "[", `\[`, "]", `\]`)

// statePattern matches the state keys of all semaphores.
func statePattern(prefix string) string { return globs.Replace(prefix) + "{*}:state" }

// nameOf returns the name of the semaphore whose state key this is; false if it
// is no state key.
func nameOf(prefix, stateKey string) (string, bool) {
	s, ok := strings.CutPrefix(stateKey, prefix+"{")
	s, ok2 := strings.CutSuffix(s, "}:state")
	return unescape.Replace(s), ok && ok2
}
