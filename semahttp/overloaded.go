package semahttp

import (
	"context"
	"errors"
	"net"
	"net/http"
	"slices"

	"sema/internal/gate"
)

// overloads are the answers of a server that has too much to do.
var overloads = []int{http.StatusTooManyRequests, http.StatusServiceUnavailable, http.StatusGatewayTimeout}

// overloadedStatus is the default of Handler.Overloaded.
func overloadedStatus(status int) bool { return slices.Contains(overloads, status) }

// overloadedResponse is the default of Transport.Overloaded.
func overloadedResponse(a *http.Response, err error) bool {
	if err == nil {
		return overloadedStatus(a.StatusCode)
	}
	var late net.Error
	return errors.Is(err, context.DeadlineExceeded) || errors.As(err, &late) && late.Timeout()
}

// judge marks the request's permit if it went badly.
func (t *Transport) judge(p *pass, a *http.Response, err error) {
	bad := t.Overloaded
	if bad == nil {
		bad = overloadedResponse
	}
	if p.over() == nil && bad(a, err) {
		gate.Overloaded(p.permit)
	}
}

// marker is a ResponseWriter that sees the status.
type marker struct {
	http.ResponseWriter
	pass *pass
	bad  func(status int) bool
}

// WriteHeader implements http.ResponseWriter.
func (m *marker) WriteHeader(status int) {
	if m.bad(status) {
		gate.Overloaded(m.pass.permit)
	}
	m.ResponseWriter.WriteHeader(status)
}

// Unwrap is for http.ResponseController.
func (m *marker) Unwrap() http.ResponseWriter { return m.ResponseWriter }

// mark has the status of w's response mark the permit. A w that cannot be hijacked, as
// of HTTP/2, can be flushed and pushes.
func (h *Handler) mark(w http.ResponseWriter, p *pass) http.ResponseWriter {
	m := &marker{w, p, h.Overloaded}
	if m.bad == nil {
		m.bad = overloadedStatus
	}
	flusher, flushes := w.(http.Flusher)
	pusher, pushes := w.(http.Pusher)
	switch {
	case flushes && pushes:
		return struct {
			*marker
			http.Flusher
			http.Pusher
		}{m, flusher, pusher}
	case flushes:
		return struct {
			*marker
			http.Flusher
		}{m, flusher}
	}
	return m
}
