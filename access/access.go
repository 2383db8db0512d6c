// Package access has the two types that package server and package dashboard share: a user who
// sees or operates semaphores, and the record of an operator's act. The server checks rights itself
// (server/routes.go), by internal/rights.
package access

import (
	"time"

	"sema/engine"
)

// A Who is a user and the user's rights. The zero Who may do nothing.
type Who struct {
	Name string // for example of a token; may be empty

	// Right is the highest right: "read" sees semaphores, their holders and their waiters;
	// "use" also acquires, renews and releases; "admin" also sets limits, pauses, revokes,
	// removes, and releases permits of others. Default: none. Any other word gives none.
	Right string

	Prefixes []string // only semaphores whose names begin with one of these; none: all
}

// Record is one act of an operator, successful or not, or one refused request. Its JSON is a
// line of the audit log. Fields may be added, but none changes its meaning.
type Record struct {
	Time    time.Time    `json:"time"`              // UTC
	Who     string       `json:"who"`               // Who.Name; "local" at a server without tokens; "" for an unknown user
	From    string       `json:"from"`              // address of the client, or of a proxy that is not trusted
	What    string       `json:"what"`              // limit, unset-limit, set-key, unset-key, pause, unpause, revoke, release, remove, adapt; refused: a request without the right, or with a wrong token; missed: lines that could not be written
	Name    string       `json:"name"`              // of the semaphore
	Permit  string       `json:"permit,omitempty"`  // revoke, release
	Caller  string       `json:"caller,omitempty"`  // revoke, release: the caller's id of the permit
	Limit   int          `json:"limit,omitempty"`   // limit
	Caps    []*int       `json:"caps,omitempty"`    // limit: the caps of keys without a rule, by how many names a key has, up to the last one that was set; null: left as it was; 0: no cap
	Pools   engine.Pools `json:"pools,omitempty"`   // limit: how much there is of those that were set, by name; 0: the pool ended
	Observe bool         `json:"observe,omitempty"` // limit: it is only watched
	Key     engine.Key   `json:"key,omitempty"`     // set-key, unset-key; revoke, release: the permit's; a text, or a list of several names
	Cap     int          `json:"cap,omitempty"`     // set-key; 0: that of keys without a rule
	Share   int          `json:"share,omitempty"`   // set-key; 0: engine.DefaultShare
	Request string       `json:"request,omitempty"` // refused: its method and path
	Lines   int          `json:"lines,omitempty"`   // refused: how many lines were left out before this one; missed: how many were lost
	Result  string       `json:"result"`            // done, gone, in-use; begun: before the operation is tried; or an error
	Was     *Rule        `json:"was,omitempty"`     // limit, unset-limit, set-key, unset-key: what held before, if there was a semaphore
}

// Rule is what held of a semaphore, or of one of its keys, before a change.
type Rule struct {
	Limit int          `json:"limit,omitempty"`
	Caps  []int        `json:"caps,omitempty"`
	Pools engine.Pools `json:"pools,omitempty"`
	Cap   int          `json:"cap,omitempty"`   // of a key; 0: none
	Share int          `json:"share,omitempty"` // of a key
}
