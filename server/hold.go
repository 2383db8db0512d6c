package server

import (
	"encoding/json"
	"net/http"
	"time"

	"sema/engine"
)

// holdEvent is a line of the response that a permit lives as long as.
type holdEvent struct {
	Event string `json:"event"` // waiting, granted, held, lost, refused
	Ahead *int   `json:"ahead,omitempty"`
	*permitJSON
	Reason string `json:"reason,omitempty"`
}

// hold is acquire for callers who cannot renew: the server renews, the response
// goes on as long as the permit is held, and when it ends, the permit is given
// back.
func (s *Server) hold(w http.ResponseWriter, r *http.Request, who *Who) error {
	id := newID()
	e, p, leave, wait, err := s.wish(w, r, who, id)
	if err != nil {
		return err
	}
	defer leave()
	defer func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.give(e, false)
	}()
	var out *stream
	say := func(event holdEvent) error {
		if out == nil {
			o := newStream(w, "application/x-ndjson")
			out = &o
		}
		line, err := json.Marshal(event)
		if err != nil {
			return err
		}
		return out.write(append(line, '\n'))
	}
	err = p.await(r.Context(), e, wait, func(state entryState, ahead int) error {
		if state != queued {
			return nil
		}
		return say(holdEvent{Event: "waiting", Ahead: &ahead})
	})
	if err != nil {
		if err == errNone && p.stopped(r.Context()) {
			err = errPaused
		}
		if out == nil {
			return err
		}
		_ = say(holdEvent{Event: "refused", Reason: plain(problemOf(err))}) // perhaps nobody listens
		return nil
	}
	p.mu.Lock()
	granted := e.describe(p.name, id)
	p.mu.Unlock()
	if say(holdEvent{Event: "granted", permitJSON: &granted}) != nil {
		return nil
	}
	reason := s.keep(r, p, e, func() error {
		p.mu.Lock()
		now := e.describe(p.name, id)
		p.mu.Unlock()
		return say(holdEvent{Event: "held", permitJSON: &now})
	})
	if reason != "" {
		_ = say(holdEvent{Event: "lost", Reason: reason}) // perhaps nobody listens
	}
	return nil
}

// keep renews a permit until the request ends or the permit is lost, and says
// why then; "" if nobody listens any more.
func (s *Server) keep(r *http.Request, p *place, e *entry, beatTo func() error) (lost string) {
	every := time.NewTicker(min(e.lease/3, beat))
	defer every.Stop()
	for {
		p.mu.Lock()
		changed, state, err := e.changed, e.state, e.err
		p.mu.Unlock()
		if state == over {
			return plain(problemOf(err))
		}
		select {
		case <-r.Context().Done():
			return ""
		case <-s.done:
			return plain(closing())
		case <-changed:
			p.mu.Lock()
			tell := e.tell
			e.tell = false
			p.mu.Unlock()
			if !tell {
				continue
			}
		case <-every.C:
		}
		a, sent, err := p.order(r.Context(), e, engine.Request{Kind: engine.Renew, ID: e.id, Lease: e.lease})
		p.mu.Lock()
		switch {
		case r.Context().Err() != nil:
		case err == nil && a.Status == engine.Granted:
			e.until = sent.Add(a.Lease)
		case err == nil && a.Status == engine.Revoked:
			err = errRevoked
		case err == nil:
			err = errGone
		case time.Now().Before(e.until.Add(-e.lease / 10)): // the next renewal may succeed
			err = nil
		}
		p.mu.Unlock()
		if r.Context().Err() != nil {
			return ""
		}
		if err != nil {
			return plain(problemOf(err))
		}
		if beatTo() != nil {
			return ""
		}
	}
}
