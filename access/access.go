// Package access has the rights of those who use semaphores from outside, and the
// record of what they did: the same for package server and package dashboard.
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

// Right is what somebody may do.
type Right uint8

// The rights. Each includes those before it.
const (
	None  Right = iota
	Read        // look at semaphores, who holds them and who waits
	Use         // acquire, renew and release
	Admin       // set limits, pause, revoke, remove, release what others hold
)

var rights = []string{None: "none", Read: "read", Use: "use", Admin: "admin"}

// String is the right's word, such as "read"; Right(42) for a value that is none
// of the constants.
func (r Right) String() string { return enum.Name("Right", r, rights...) }

// ParseRight is the right of a word; None for a word that is no right's.
func ParseRight(word string) Right { return Right(max(0, slices.Index(rights, word))) }

// Who is somebody with a right. The zero Who may do nothing.
type Who struct {
	Name     string   // such as a token's; may be empty
	Right    Right    // the highest
	Prefixes []string // only semaphores whose names begin with one of these; none: all
}

// May reports whether somebody has a right.
func (w Who) May(right Right) bool { return w.Right >= right }

// Sees reports whether the prefixes cover a name.
func (w Who) Sees(name string) bool {
	return len(w.Prefixes) == 0 || slices.ContainsFunc(w.Prefixes, func(p string) bool { return strings.HasPrefix(name, p) })
}

// Among returns the prefixes of those names that begin with prefix and that w sees. An
// empty list covers any name. any is false if w sees no such name.
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

// Record is one thing that an operator did, or that failed, or that somebody was
// refused. As JSON it is a line of a Log. Fields may be added; none changes its
// meaning.
type Record struct {
	Time    time.Time `json:"time"`              // UTC
	Who     string    `json:"who"`               // Who.Name; "local" at a server without tokens; "" for somebody unknown
	From    string    `json:"from"`              // address of the other end: a proxy's, behind one that is not trusted
	What    string    `json:"what"`              // limit, unset-limit, set-key, unset-key, pause, unpause, revoke, release, remove, adapt; Refusal, Missed
	Name    string    `json:"name"`              // of the semaphore
	Permit  string    `json:"permit,omitempty"`  // revoke, release
	Caller  string    `json:"caller,omitempty"`  // revoke, release: the id that the holder gave to the permit
	Limit   int       `json:"limit,omitempty"`   // limit
	PerKey  *int      `json:"per_key,omitempty"` // limit: with it the most of a key, if that was set; 0: none
	Key     string    `json:"key,omitempty"`     // set-key, unset-key: which
	Cap     int       `json:"cap,omitempty"`     // set-key; 0: that of all keys
	Share   int       `json:"share,omitempty"`   // set-key; 0: the usual one
	Request string    `json:"request,omitempty"` // refused: its method and path
	Lines   int       `json:"lines,omitempty"`   // how many lines like this, or before it, are not there
	Result  string    `json:"result"`            // done, gone, in-use; else the error; Begun
}

// Values of Record.What that are no operations.
const (
	Refusal = "refused" // a request without the right, or with a wrong token
	Missed  = "missed"  // lines that could not be written
)

// Begun is the result of an operation that is about to be tried.
const Begun = "begun"

// By returns the record with the present time, the name of who, and the address that r
// came from.
func (a Record) By(who Who, r *http.Request) Record {
	a.Time, a.Who, a.From = time.Now().UTC(), who.Name, r.RemoteAddr
	return a
}

// Refused is the record of a request that was refused. why is in a few words.
func Refused(who Who, r *http.Request, name, why string) Record {
	const most = 200
	request := r.Method + " " + r.URL.Path
	return Record{What: Refusal, Name: name[:min(len(name), most)], Request: request[:min(len(request), most)], Result: why}.By(who, r)
}

// ResultOf is what a Record says of the outcome of an operation.
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
