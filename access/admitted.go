package access

import (
	"context"
	"net/http"
)

type admitted struct{}

// WhenAdmitted is the request with f to be called once somebody with a right has been
// found to have sent it. It is for a server that serves a handler which checks
// rights by itself.
func WhenAdmitted(r *http.Request, f func()) *http.Request {
	return r.WithContext(context.WithValue(r.Context(), admitted{}, f))
}

// Admitted says of a request that somebody with a right has sent it.
func Admitted(r *http.Request) {
	if f, ok := r.Context().Value(admitted{}).(func()); ok {
		f()
	}
}
