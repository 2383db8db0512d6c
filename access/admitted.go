package access

import (
	"context"
	"net/http"
)

type admitted struct{}

// WhenAdmitted returns r with f attached, which Admitted calls. It is for a server whose
// handler checks rights by itself.
func WhenAdmitted(r *http.Request, f func()) *http.Request {
	return r.WithContext(context.WithValue(r.Context(), admitted{}, f))
}

// Admitted notes that the sender of a request was found to have a right: it calls what
// WhenAdmitted attached. A handler that checks rights by itself calls it.
func Admitted(r *http.Request) {
	if f, ok := r.Context().Value(admitted{}).(func()); ok {
		f()
	}
}
