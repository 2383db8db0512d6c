// Package rights decides who may do what, where a request came from and how often it is looked
// at, and writes the audit log. Package server and package dashboard share it: server/token.go finds out who
// sends a request, and server/routes.go says which right each route wants.
package rights

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"
	"time"

	"sema"
	"sema/access"
)

// The rights: values of access.Who.Right. Each includes those before it.
const (
	None  = ""
	Read  = "read"
	Use   = "use"
	Admin = "admin"
)

var rights = []string{None, Read, Use, Admin}

// IsRight reports whether a word is the name of a right.
func IsRight(word string) bool { return word != None && slices.Contains(rights, word) }

// May reports whether a user has a right. It is false if either word is unknown.
func May(w access.Who, right string) bool {
	needed := slices.Index(rights, right)
	return needed >= 0 && slices.Index(rights, w.Right) >= needed
}

// Sees reports whether the prefixes of a user cover a name.
func Sees(w access.Who, name string) bool {
	return len(w.Prefixes) == 0 || slices.ContainsFunc(w.Prefixes, func(p string) bool { return strings.HasPrefix(name, p) })
}

type failed struct{}

// WithFailed has f told of errors of the engine with which a handler of the server answers a request.
func WithFailed(r *http.Request, f func(error)) *http.Request {
	return r.WithContext(context.WithValue(r.Context(), failed{}, f))
}

// Failed tells the server of an error. It reports whether there is a server.
func Failed(r *http.Request, err error) bool {
	f, ok := r.Context().Value(failed{}).(func(error))
	if ok {
		f(err)
	}
	return ok
}

// Among returns prefixes that cover the names that begin with prefix and that w sees. An empty
// list covers all names. any is false if w sees no such name.
func Among(w access.Who, prefix string) (prefixes []string, any bool) {
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

// Values of access.Record.What that are not operations.
const (
	Refusal = "refused"
	Missed  = "missed"
)

// Begun is the Result of an operation before it is tried.
const Begun = "begun"

// By returns the record with the current time, the name of who, and the address of the
// sender of r.
func By(a access.Record, who access.Who, r *http.Request) access.Record {
	a.Time, a.Who, a.From = time.Now().UTC(), who.Name, r.RemoteAddr
	return a
}

// Refused makes the record of a refused request. why is the reason in a few words.
func Refused(who access.Who, r *http.Request, name, why string) access.Record {
	const most = 200
	request := r.Method + " " + r.URL.Path
	return By(access.Record{What: Refusal, Name: name[:min(len(name), most)], Request: request[:min(len(request), most)], Result: why}, who, r)
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
