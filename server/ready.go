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
		s.log.Warn("the engine does not answer", "error", s.ready.err)
		return problem(http.StatusServiceUnavailable, "not-ready", "the engine does not answer").after(time.Second)
	}
	return write(w, plainText, []byte("ready\n"))
}

// healthz answers that the process is alive.
func (s *Server) healthz(w http.ResponseWriter, _ *http.Request, _ *access.Who) error {
	return write(w, plainText, []byte("alive\n"))
}

const plainText = "text/plain; charset=utf-8"
