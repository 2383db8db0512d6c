package server

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"

	"sema"
	"sema/engine"
	"sema/internal/wire"
)

// httpProblem is an error with which the server answers.
type httpProblem struct {
	wire.Problem
	audited string // replaces Detail in the audit log, which may be more precise
	name    string // of the semaphore, if neither path nor query of the request have it
}

// Error is "sema: " and the detail.
func (p *httpProblem) Error() string { return "sema: " + p.Detail }

func problem(status int, kind, format string, args ...any) *httpProblem {
	return &httpProblem{Problem: wire.Problem{
		Type: wire.ProblemType + kind, Title: http.StatusText(status), Status: status, Detail: fmt.Sprintf(format, args...),
		NotExecuted: status < 500,
	}}
}

func (p *httpProblem) after(d time.Duration) *httpProblem {
	p.RetryAfter = d.Seconds()
	return p
}

// soon is after, for a problem that passes by itself.
func (p *httpProblem) soon(d time.Duration) *httpProblem {
	p.Temporary = true
	return p.after(d)
}

func (p *httpProblem) unchanged() *httpProblem {
	p.NotExecuted = true
	return p
}

// of sets the semaphore for the audit log.
func (p *httpProblem) of(name string) *httpProblem {
	p.name = name
	return p
}

// at adds the semaphore's name to the detail, if the problem is the semaphore's state.
func (p *httpProblem) at(name string) *httpProblem {
	switch p.Status {
	case http.StatusConflict, http.StatusGone, http.StatusLocked, http.StatusTooManyRequests:
		if name != "" {
			named := *p
			named.Detail = fmt.Sprintf("%q: %s", name, p.Detail)
			return &named
		}
	}
	return p
}

// noteFailure logs an error of the engine: one that its silence explains, and one that does not pass by itself.
func (s *Server) noteFailure(ctx context.Context, err error) {
	failure, ok := errors.AsType[*engine.Error](err)
	switch {
	case ok && failure.Temporary || errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil:
		s.engineFailed(err)
	case ok && errors.Is(err, sema.ErrEngine) && s.engineErrors.Wait("") == 0:
		s.engineErrors.Take("")
		s.log.Error("the engine refuses calls, with an error that does not pass by itself", "error", err)
	}
}

// closing is the answer to requests while the server closes.
func closing() *httpProblem {
	return problem(http.StatusServiceUnavailable, "closing", "the server is being stopped: nothing was granted").unchanged().soon(time.Second)
}

// problemOf makes the problem with which the server answers an error.
func problemOf(err error) *httpProblem {
	if p, ok := errors.AsType[*httpProblem](err); ok {
		return p
	}
	var argument *engine.ArgumentError
	var size *http.MaxBytesError
	switch {
	case errors.As(err, &argument):
		return problem(http.StatusBadRequest, "argument", "%s", plain(err))
	case errors.As(err, &size):
		return problem(http.StatusRequestEntityTooLarge, "too-large", "the body has more than %d bytes", size.Limit)
	case errors.Is(err, sema.ErrEngine):
		p := problem(http.StatusServiceUnavailable, "engine", "%s", plain(err))
		if failure, ok := errors.AsType[*engine.Error](err); ok {
			p.Hint, p.NotExecuted, p.Temporary = failure.Hint, failure.NotExecuted, failure.Temporary
		}
		return p.after(time.Second)
	case errors.Is(err, sema.ErrClosed):
		return closing()
	case errors.Is(err, sema.ErrNotFound):
		return problem(http.StatusNotFound, "no-semaphore", "%s", plain(err))
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return problem(http.StatusServiceUnavailable, "timeout", "no answer in time").soon(time.Second)
	}
	return problem(http.StatusInternalServerError, "internal", "internal error; the server's log has more")
}

// plain is an error's text without the prefix "sema: " and without the hint.
func plain(err error) string {
	text, _ := engine.WithoutHint(err)
	return strings.TrimPrefix(text, "sema: ")
}

func (s *Server) fail(w http.ResponseWriter, r *http.Request, err error) {
	p := problemOf(err).at(r.PathValue("name"))
	s.noteFailure(r.Context(), err)
	if p.Status == http.StatusInternalServerError {
		s.log.Error("internal error", "method", r.Method, "path", r.URL.Path, "error", err)
	}
	h := w.Header()
	h.Set("Content-Type", "application/problem+json")
	h.Set("X-Content-Type-Options", "nosniff")
	if p.RetryAfter > 0 {
		h.Set("Retry-After", strconv.Itoa(int(math.Ceil(p.RetryAfter))))
	}
	if p.Status == http.StatusUnauthorized {
		h.Set("WWW-Authenticate", `Bearer realm="sema"`)
	}
	if p.Status == http.StatusRequestTimeout {
		h.Set("Connection", "close") // the rest of the body may still arrive
	}
	w.WriteHeader(p.Status)
	_ = json.NewEncoder(w).Encode(p) // fails only if the client is gone
}
