package server

import (
	"context"
	"net/http"
	"sync"
	"time"

	"sema/access"
)

// ready is the result of the last check of the engine.
type ready struct {
	mu  sync.Mutex
	at  time.Time
	err error
}

// readyz answers whether the engine answers. The result may be a second old.
func (s *Server) readyz(w http.ResponseWriter, r *http.Request, _ *access.Who) error {
	if s.closed.Load() {
		return closing()
	}
	s.ready.mu.Lock()
	defer s.ready.mu.Unlock()
	if time.Since(s.ready.at) > time.Second {
		ctx, cancel := context.WithTimeout(r.Context(), 2*time.Second)
		defer cancel()
		_, s.ready.err = s.stateOf(ctx, "sema-readyz")
		s.ready.at = time.Now()
	}
	if s.ready.err != nil {
		s.engineFailed(s.ready.err)
		return problem(http.StatusServiceUnavailable, "not-ready", "the engine does not answer").after(time.Second)
	}
	return write(w, plainText, []byte("ready\n"))
}

// healthz answers that the process is alive.
func (s *Server) healthz(w http.ResponseWriter, _ *http.Request, _ *access.Who) error {
	return write(w, plainText, []byte("alive\n"))
}

// outage is the time in which the engine does not answer.
type outage struct {
	mu      sync.Mutex
	since   time.Time // zero: it answers
	refused int       // requests
}

// engineFailed logs the first failure of a series. The end of the series is logged once the engine has answered.
func (s *Server) engineFailed(err error) {
	o := &s.outage
	o.mu.Lock()
	defer o.mu.Unlock()
	if s.closed.Load() {
		return
	}
	if o.refused++; o.refused > 1 {
		return
	}
	o.since = time.Now()
	s.log.Warn("the engine does not answer", "error", err)
	s.ended.Go(s.awaitEngine)
}

// awaitEngine asks the engine until it answers.
func (s *Server) awaitEngine() {
	ticker := time.NewTicker(time.Second)
	defer ticker.Stop()
	for answers := false; !answers; {
		select {
		case <-s.done:
			return
		case <-ticker.C:
		}
		ctx, cancel := context.WithTimeout(s.ctx, 2*time.Second)
		_, err := s.stateOf(ctx, "sema-readyz")
		answers = err == nil
		cancel()
	}
	o := &s.outage
	o.mu.Lock()
	defer o.mu.Unlock()
	s.log.Info("the engine answers again", "seconds", time.Since(o.since).Seconds(), "refused", o.refused)
	o.since, o.refused = time.Time{}, 0
}

const plainText = "text/plain; charset=utf-8"
