package redisengine

import (
	"slices"
	"strings"
)

// All names of keys. Every key of a semaphore begins with
// sema:{name}: so that all of them, and the channels, live in one cluster slot.
// Options.Prefix may replace "sema:". lua/layout.lua says what each key has.
type keys struct {
	prefix string // sema:{name}:

	// all has the scripts' KEYS, in their order. The state also takes the place
	// of the caller's description, in calls that send none.
	all [11]string
}

// How many of the KEYS a call has: all up to those that it needs.
const (
	mainKeys      = 6
	describedKeys = 7
	keyedKeys     = 10
	reportingKeys = 11
)

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
	for i, kind := range []string{"state", "holders", "waiters", "slots", "fences", "keepers", "state", "turn", "keys", "lines", "reports"} {
		k.all[i] = k.prefix + kind
	}
	return k
}

func (k *keys) state() string   { return k.all[0] }
func (k *keys) holders() string { return k.all[1] }
func (k *keys) reports() string { return k.all[10] }

// ofState returns the KEYS of state.lua.
func (k *keys) ofState() []string { return append(slices.Clone(k.all[:3]), k.all[8:]...) }

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
