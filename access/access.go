// Package access has the rights of those who use semaphores from outside, and the
// record of what they did: the same for package server and package dashboard.
package access

import (
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"
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

// Among is what names begin with that begin with prefix, as far as w
// sees them; none: any name. any is false if w sees no such name.
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

// Record is one thing that an operator did, or that failed. As JSON it is a line
// of a Log. Fields may be added; none changes its meaning.
type Record struct {
	Time   time.Time `json:"time"`             // UTC
	Who    string    `json:"who"`              // Who.Name; "local" at a server without tokens
	From   string    `json:"from"`             // address of the other end: a proxy's, behind one
	What   string    `json:"what"`             // limit, unset-limit, pause, unpause, revoke, release, remove
	Name   string    `json:"name"`             // of the semaphore
	Permit string    `json:"permit,omitempty"` // revoke, release
	Limit  int       `json:"limit,omitempty"`  // limit
	Result string    `json:"result"`           // done, gone, in-use; else the error
}

// By is the record with the time of now, and with who sent the request.
func (a Record) By(who Who, r *http.Request) Record {
	a.Time, a.Who, a.From = time.Now().UTC(), who.Name, r.RemoteAddr
	return a
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

// Log writes records down, one line of JSON for each. Create it with NewLog; it
// is safe for concurrent use.
type Log struct {
	mu  sync.Mutex
	out io.Writer
	log *slog.Logger
}

// NewLog makes a Log. out gets the lines; nil: nobody. log is told as well, and
// of lines that cannot be written; nil: nobody.
func NewLog(out io.Writer, log *slog.Logger) *Log {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	return &Log{out: out, log: log}
}

// Add writes a line. It is for the option Audit of a server and of a dashboard.
func (l *Log) Add(a Record) {
	l.log.Info("operator", "who", a.Who, "from", a.From, "what", a.What, "name", a.Name, "permit", a.Permit, "limit", a.Limit, "result", a.Result)
	if l.out == nil {
		return
	}
	line, err := json.Marshal(a)
	if err != nil {
		return // cannot happen: texts and numbers
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, err := l.out.Write(append(line, '\n')); err != nil {
		l.log.Error("the audit log cannot be written", "error", err)
	}
}
