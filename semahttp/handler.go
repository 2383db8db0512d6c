package semahttp

import (
	"cmp"
	"errors"
	"math"
	"net/http"
	"strconv"
	"time"

	"sema"
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
	// request that is not limited. See All, ByHost, ByKey, Of. Required.
	Limit func(*http.Request) Limiter

	// Wait is how long a request waits for its permit at most. A client that
	// leaves ends the wait as well. Default 10 s.
	Wait time.Duration

	// Status is the answer to a request that waited in vain: 503 Service
	// Unavailable or 429 Too Many Requests. Default 503, which is the answer as
	// well when the engine does not answer. Other errors of a limiter are a 500.
	Status int

	// RetryAfter is what the header Retry-After of those answers says, in whole
	// seconds, rounded up; 0 or more. Default 1 s.
	RetryAfter time.Duration

	// Position names a header, such as "X-Queue-Position", that tells a request
	// which waited in vain where it stood in the queue at the end: 1 is the head.
	// It is told if the limiter has State, as that of a Semaphore does. It may be a second old, and is the least that it can have been: only tickets
	// in the engine's queue count, not callers behind them in other processes.
	// Default: not told.
	Position string

	// Policy says what happens when the engine does not answer. Default
	// FailClosed.
	Policy Policy

	// AnswerWithin is how long the engine may say nothing to a request before it
	// counts as away: neither that the request is admitted nor that it waits.
	// Default 100 ms; with FailClosed, and at most, three seconds.
	AnswerWithin time.Duration

	// Places is how many requests FailLocal lets through at once, in all,
	// 1 … MaxPlaces. Required with FailLocal; else 0.
	Places int

	// PlacesPerKey is how many of them may be of one limiter's name, 1 … Places.
	// Default: all.
	PlacesPerKey int

	// Observer is told what nobody else is told. Default: nobody.
	Observer Observer

	gate   gate
	queues queues
}

// ServeHTTP implements http.Handler.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	came := time.Now()
	a := admission{cmp.Or(h.Wait, 10*time.Second), h.Policy, h.AnswerWithin, h.Places, h.PlacesPerKey, &h.Observer}
	l, err := limiterOf(h.Limit, r, a)
	if err == nil {
		err = h.check()
	}
	if err == nil && l.Acquire == nil {
		h.Next.ServeHTTP(w, r)
		return
	}
	var p *pass
	if err == nil {
		p, err = h.gate.enter(r, l, a)
	}
	if err != nil {
		h.refuse(w, r, l, came, err)
		return
	}
	h.serve(w, r, p)
}

// check says what the handler cannot answer with.
func (h *Handler) check() error {
	switch {
	case h.Status != 0 && h.Status != http.StatusServiceUnavailable && h.Status != http.StatusTooManyRequests:
		return invalid("Status", h.Status, "503 or 429")
	case h.RetryAfter < 0:
		return invalid("RetryAfter", h.RetryAfter, "0 for 1s, or more")
	}
	return nil
}

// serve serves an admitted request.
func (h *Handler) serve(w http.ResponseWriter, r *http.Request, p *pass) {
	inner := r.WithContext(p.context(r.Context()))
	hold := &hold{pass: p, abandoned: h.Observer.abandoned(r, p.name)}
	defer func() {
		r.MultipartForm = inner.MultipartForm // the server removes its files
		if !hold.hijacked.Load() {
			p.release()
		}
	}()
	h.Next.ServeHTTP(wrap(w, hold), inner)
}

// refuse answers a request that is not admitted.
func (h *Handler) refuse(w http.ResponseWriter, r *http.Request, l Limiter, came time.Time, err error) {
	status := http.StatusInternalServerError
	var failure *sema.EngineError
	switch {
	case errors.As(err, &failure), errors.Is(err, sema.ErrClosed):
		status = http.StatusServiceUnavailable
	case errors.Is(err, sema.ErrUnavailable):
		status = cmp.Or(h.Status, http.StatusServiceUnavailable)
		if h.Position != "" && r.Context().Err() == nil {
			if n := h.queues.position(r.Context(), l, came); n > 0 {
				w.Header().Set(h.Position, strconv.Itoa(n))
			}
		}
	}
	if status != http.StatusInternalServerError {
		seconds := max(1, math.Ceil(h.RetryAfter.Seconds()))
		w.Header().Set("Retry-After", strconv.FormatFloat(seconds, 'f', 0, 64))
	}
	http.Error(w, http.StatusText(status), status)
}
