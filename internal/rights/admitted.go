package rights

import (
	"context"
	"net/http"
)

type admitted struct{}

// WhenAdmitted returns r with f attached, which Admitted calls. A server uses it with a handler
// that checks rights itself.
func WhenAdmitted(r *http.Request, f func()) *http.Request {
	return r.WithContext(context.WithValue(r.Context(), admitted{}, f))
}

// Admitted reports that the sender of a request has a right: it calls the function that
// WhenAdmitted attached. A handler that checks rights itself calls Admitted.
func Admitted(r *http.Request) {
	if f, ok := r.Context().Value(admitted{}).(func()); ok {
		f()
	}
}
