package redisengine

import "strings"

// The data model at one glance. Every key of a semaphore begins with
// sema:{name}: so that all of them, and the channels, live in one cluster slot.
//
//	state    string limit, weight held, last token, … (lua/layout.lua)
//	holders  zset  permit id -> end of its lease in microseconds
//	waiters  zset  permit id -> place in the queue
//	tickets  hash  permit id -> end of its ticket; "" is a mark, see queue.lua
//	slots    zset  permit id -> slot
//	tokens   hash  permit id -> token, where recorded
//	client:… string host, pid and label of a client
//	inbox:…  channel news for a client
type keys struct {
	prefix string
	main   [6]string // as step.lua and state.lua take them
}

const keyPrefix = "sema:{"

// The hash tag ends at the first brace, and an empty one is none: braces in a
// name, and the escape sign itself, are escaped.
var (
	escape   = strings.NewReplacer("%", "%25", "{", "%7B", "}", "%7D")
	unescape = strings.NewReplacer("%25", "%", "%7B", "{", "%7D", "}")
)

func keysOf(name string) keys {
	k := keys{prefix: keyPrefix + escape.Replace(name) + "}:"}
	for i, kind := range []string{"state", "holders", "waiters", "tickets", "slots", "tokens"} {
		k.main[i] = k.prefix + kind
	}
	return k
}

func (k keys) state() string               { return k.main[0] }
func (k keys) client(client string) string { return k.prefix + "client:" + client }
func (k keys) inboxes() string             { return k.prefix + "inbox:" }
func (k keys) inbox(client string) string  { return k.inboxes() + client }

// statePattern matches the state keys of all semaphores.
const statePattern = `sema:{*}:state`

// nameOf is the semaphore whose state key this is.
func nameOf(stateKey string) (string, bool) {
	s, ok := strings.CutPrefix(stateKey, keyPrefix)
	s, ok2 := strings.CutSuffix(s, "}:state")
	return unescape.Replace(s), ok && ok2
}
