package semahttp

import (
	"cmp"
	"errors"
	"log/slog"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"sema"
	"sema/admit"
)

// Handler is an http.Handler that limits how many requests run in Next at once. A
// request runs until Next has returned or panicked, or, when Next took over its
// connection, until that connection is closed. Fields must not be changed after
// first use.
//
// The context of the request that Next gets ends when the permit is lost, with
// cause sema.ErrLost; a connection that was taken over is then closed. One that
// nobody closes is found by the garbage collector and closed, and
// Observer.Abandoned is told.
//
// http.ResponseController works through it, and so do Flusher, Hijacker and
// io.ReaderFrom where the server has them.
type Handler struct {
	// Next serves the requests. Required.
	Next http.Handler

	// Limit is the limiter that a request has to pass; the zero Limiter for a
	// request that is not limited. See Of and OfEach. Required.
	Limit func(*http.Request) Limiter

	// Wait is how long a request waits for its permit at most, or NoWait. A client that
	// leaves ends the wait as well. A request that cannot be served by then is refused at
	// once, with Status; see sema.BusyError. Default: 0, which is 10 s.
	Wait time.Duration

	// Status is the answer to a request that waited in vain: 503 Service
	// Unavailable or 429 Too Many Requests. Default 503, which is the answer as
	// well when the engine does not answer. A key or a weight that cannot be is a 400,
	// a weight above the limit a 413, and the body of both says why. Any other error of a
	// limiter is a 500. The log has the reason of each 400 and 500.
	Status int

	// RetryAfter is what the header Retry-After of a 503 or 429 says, in whole
	// seconds, rounded up. Default: 0, the estimate of a *sema.BusyError, and 1 s if
	// there is none.
	RetryAfter time.Duration

	// RetryAfterOf says the same for each request; 0 for RetryAfter. It must not
	// block. Default: RetryAfter.
	RetryAfterOf func(Refused) time.Duration

	// Position names a header, such as "X-Queue-Position", that tells a request
	// which waited in vain where it stood in the queue at the end: 1 is the head.
	// It is told for limiters that Of makes, and counts those of the request's key. It may be
	// a second old, and is the least that it can have been: only tickets in the engine's
	// queue count, not callers behind them in other processes. Default: not told.
	Position string

	// Outage says what happens when the engine does not answer: admit.Open, admit.Local.
	// Default admit.Closed.
	Outage admit.Policy

	// Overloaded says which answers of Next show that it has too much to do, for a
	// semaphore with sema.Options.Adapt. Default: 429, 503 and 504.
	Overloaded func(status int) bool

	// Observer is told what no response and no error shows. Default: nobody.
	Observer Observer

	gate   admit.Gate
	queues queues
}

// Refused is a request that was not admitted.
type Refused struct {
	Request  *http.Request
	Limiter  string // its name
	Err      error  // a sema.ErrBusy, or the sema.ErrEngine of an outage
	Position int    // in the queue, as Handler.Position tells it; 0: not known
}

// ServeHTTP implements http.Handler.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	came := time.Now()
	o, err := h.check()
	var p *pass
	var l Limiter
	if err == nil {
		p, l, err = enter(&h.gate, r, o, h.Limit, &h.Observer)
	}
	switch {
	case err != nil:
		h.refuse(w, r, l, came, err)
	case p == nil:
		h.Next.ServeHTTP(w, r)
	default:
		h.serve(w, r, p)
	}
}

// Check returns nil if the handler can serve. Otherwise it returns the *sema.ArgumentError
// for which every request would be answered 500, or with which Of or OfEach panics: Check calls
// Limit once with an empty request. To call Check first is not required.
func (h *Handler) Check() error {
	if h.Next == nil {
		return invalid("Next", nil, "a handler")
	}
	if _, err := h.check(); err != nil {
		return err
	}
	return try(h.Limit)
}

// check returns what requests are admitted under, and what the handler cannot serve with.
func (h *Handler) check() (admit.Options, error) {
	o := admit.Options{Wait: cmp.Or(h.Wait, 10*time.Second), Outage: h.Outage, Told: h.Observer.Outage}
	switch {
	case h.Limit == nil:
		return o, errNoLimit
	case h.Status != 0 && h.Status != http.StatusServiceUnavailable && h.Status != http.StatusTooManyRequests:
		return o, invalid("Status", h.Status, "503 or 429")
	case h.RetryAfter < 0:
		return o, invalid("RetryAfter", h.RetryAfter, "0 for an estimate, or more")
	}
	return o, o.Check("semahttp")
}

// serve serves an admitted request.
func (h *Handler) serve(w http.ResponseWriter, r *http.Request, p *pass) {
	inner := r.WithContext(p.context(r.Context()))
	own := &response{ResponseWriter: w, pass: p, bad: h.Overloaded, abandoned: h.Observer.abandoned(r, p.name)}
	if own.bad == nil {
		own.bad = overloadedStatus
	}
	defer func() {
		tellOutside(r, inner)
		if !own.hijacked.Load() {
			p.release()
		}
	}()
	h.Next.ServeHTTP(own.as(), inner)
}

// tellOutside copies the results of inner handlers from the inner request to the
// outer one. The server needs the form, to remove its files, and middleware logs the
// route.
func tellOutside(r, inner *http.Request) {
	r.MultipartForm = inner.MultipartForm
	if r.Pattern == inner.Pattern {
		return
	}
	r.Pattern = inner.Pattern
	for _, part := range strings.Split(r.Pattern, "{")[1:] {
		if end := strings.IndexAny(part, "}.:"); end > 0 {
			r.SetPathValue(part[:end], inner.PathValue(part[:end]))
		}
	}
}

// refuse answers a request that is not admitted.
func (h *Handler) refuse(w http.ResponseWriter, r *http.Request, l Limiter, came time.Time, err error) {
	status := statusOf(err)
	if status == http.StatusServiceUnavailable {
		told := Refused{Request: r, Limiter: l.Name, Err: err}
		if errors.Is(err, sema.ErrBusy) {
			status = cmp.Or(h.Status, status)
			if (h.Position != "" || h.RetryAfterOf != nil) && r.Context().Err() == nil {
				told.Position = h.queues.position(r.Context(), l, came)
			}
		}
		if h.Position != "" && told.Position > 0 {
			w.Header().Set(h.Position, strconv.Itoa(told.Position))
		}
		after := h.RetryAfter
		if busy, ok := errors.AsType[*sema.BusyError](err); ok && after == 0 {
			after = busy.RetryAfter
		}
		if f := h.RetryAfterOf; f != nil {
			after = cmp.Or(max(0, f(told)), after)
		}
		w.Header().Set("Retry-After", strconv.FormatFloat(max(1, math.Ceil(after.Seconds())), 'f', 0, 64))
	}
	text := http.StatusText(status)
	switch status {
	case http.StatusBadRequest:
		text += "\n" + err.Error()
		slog.Warn("semahttp: bad request", "status", status, "error", err)
	case http.StatusRequestEntityTooLarge:
		text += "\n" + err.Error()
	case http.StatusInternalServerError:
		slog.Error("semahttp: a limiter failed", "status", status, "error", err)
	}
	http.Error(w, text, status)
}

// statusOf is the answer to a request that failed so; 503 to one that may come
// again.
func statusOf(err error) int {
	var argument *sema.ArgumentError
	var heavy *sema.WeightError
	switch {
	case errors.Is(err, sema.ErrBusy), errors.Is(err, sema.ErrEngine), errors.Is(err, sema.ErrClosed):
		return http.StatusServiceUnavailable
	case errors.As(err, &heavy):
		return http.StatusRequestEntityTooLarge
	case errors.As(err, &argument) && (slices.Contains([]string{"key", "name", "weight"}, argument.What) || strings.HasPrefix(argument.What, "amount of pool ")):
		return http.StatusBadRequest
	}
	return http.StatusInternalServerError
}
