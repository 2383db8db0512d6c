// Package access has the rights of users and the audit log of their acts. Package server and
// package dashboard share it.
package access

import (
	"errors"
	"net/http"
	"slices"
	"strings"
	"time"

	"sema"
	"sema/internal/enum"
)

// Right is what a user may do.
type Right uint8

// The rights. Each includes those before it.
const (
	None  Right = iota
	Read        // see semaphores, their holders and their waiters
	Use         // acquire, renew and release
	Admin       // set limits, pause, revoke, remove, release permits of others
)

var rights = []string{None: "none", Read: "read", Use: "use", Admin: "admin"}

// String is the name of the right, such as "read"; Right(42) for a value that is none of the
// constants.
func (r Right) String() string { return enum.Name("Right", r, rights...) }

// ParseRight returns the right with a name; None for any other text.
func ParseRight(word string) Right { return Right(max(0, slices.Index(rights, word))) }

// A Who is a user and the user's rights. The zero Who may do nothing.
type Who struct {
	Name     string   // for example of a token; may be empty
	Right    Right    // the highest right
	Prefixes []string // only semaphores whose names begin with one of these; none: all
}

// May reports whether the user has a right.
func (w Who) May(right Right) bool { return w.Right >= right }

// Sees reports whether the prefixes cover a name.
func (w Who) Sees(name string) bool {
	return len(w.Prefixes) == 0 || slices.ContainsFunc(w.Prefixes, func(p string) bool { return strings.HasPrefix(name, p) })
}

// Among returns prefixes that cover the names that begin with prefix and that w sees. An empty
// list covers all names. any is false if w sees no such name.
func (w Who) Among(prefix string) (prefixes []string, any bool) {
	if len(w.Prefixes) == 0 {
		if prefix != "" {
			prefixes = []string{prefix}
		}
		return prefixes, true
	}
	for _, p := range w.Prefixes {
		switch {
		case strings.HasPrefix(p, prefix):
			prefixes = append(prefixes, p)
		case strings.HasPrefix(prefix, p):
			prefixes = append(prefixes, prefix)
		}
	}
	return prefixes, len(prefixes) > 0
}

// Record is one act of an operator, successful or not, or one refused request. Its JSON is a
// line of a Log. Fields may be added, but none changes its meaning.
type Record struct {
	Time    time.Time `json:"time"`              // UTC
	Who     string    `json:"who"`               // Who.Name; "local" at a server without tokens; "" for an unknown user
	From    string    `json:"from"`              // address of the client, or of a proxy that is not trusted
	What    string    `json:"what"`              // limit, unset-limit, set-key, unset-key, pause, unpause, revoke, release, remove, adapt; Refusal, Missed
	Name    string    `json:"name"`              // of the semaphore
	Permit  string    `json:"permit,omitempty"`  // revoke, release
	Caller  string    `json:"caller,omitempty"`  // revoke, release: the caller's id of the permit
	Limit   int       `json:"limit,omitempty"`   // limit
	PerKey  *int      `json:"per_key,omitempty"` // limit: the cap of keys without a rule, if it was set; 0: no cap
	Key     string    `json:"key,omitempty"`     // set-key, unset-key
	Cap     int       `json:"cap,omitempty"`     // set-key; 0: that of keys without a rule
	Share   int       `json:"share,omitempty"`   // set-key; 0: engine.DefaultShare
	Request string    `json:"request,omitempty"` // refused: its method and path
	Lines   int       `json:"lines,omitempty"`   // refused: how many lines were left out before this one; missed: how many were lost
	Result  string    `json:"result"`            // done, gone, in-use; Begun; or an error
}

// Values of Record.What that are not operations.
const (
	Refusal = "refused" // a request without the right, or with a wrong token
	Missed  = "missed"  // lines that could not be written
)

// Begun is the Result of an operation before it is tried.
const Begun = "begun"

// By returns the record with the current time, the name of who, and the address of the
// sender of r.
func (a Record) By(who Who, r *http.Request) Record {
	a.Time, a.Who, a.From = time.Now().UTC(), who.Name, r.RemoteAddr
	return a
}

// Refused makes the record of a refused request. why is the reason in a few words.
func Refused(who Who, r *http.Request, name, why string) Record {
	const most = 200
	request := r.Method + " " + r.URL.Path
	return Record{What: Refusal, Name: name[:min(len(name), most)], Request: request[:min(len(request), most)], Result: why}.By(who, r)
}

// ResultOf is the Result of an operation that returned err.
func ResultOf(err error) string {
	switch {
	case err == nil:
		return "done"
	case errors.Is(err, sema.ErrLost), errors.Is(err, sema.ErrNotFound):
		return "gone"
	case errors.Is(err, sema.ErrInUse):
		return "in-use"
	}
	return strings.TrimPrefix(err.Error(), "sema: ")
}
