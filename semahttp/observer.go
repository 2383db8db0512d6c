package semahttp

import (
	"net/http"

	"sema/admit"
)

// Observer is told what no response and no error shows. Fields may be nil. The functions
// are called from the goroutine at hand, must not block, and must not change the
// request.
type Observer struct {
	// EngineFailed: the engine did not answer for a request. Outage decided what
	// became of it.
	EngineFailed func(EngineFailed)

	// Outage: with admit.Open or admit.Local, an outage of the engine began, or is over.
	// Default: slog is told, with a WARN and an INFO.
	Outage func(admit.Outage)

	// Abandoned: the garbage collector found a response's body, or a connection
	// that a handler took over, which nobody closed. It has been closed, and its
	// permit given back.
	Abandoned func(Abandoned)
}

// EngineFailed is what Observer.EngineFailed is told.
type EngineFailed struct {
	Request *http.Request
	Limiter string // its name
	Err     error  // what the engine said, to this request or to the last that asked it

	Admitted bool // the request goes on without a permit
}

// Abandoned is what Observer.Abandoned is told.
type Abandoned struct {
	Method, URL string // of the request
	Limiter     string // its name
}

func (o *Observer) abandoned(r *http.Request, name string) func() {
	f := o.Abandoned
	if f == nil {
		return nil
	}
	told := Abandoned{Method: r.Method, Limiter: name}
	if r.URL != nil {
		told.URL = r.URL.Redacted()
	}
	return func() { f(told) }
}
