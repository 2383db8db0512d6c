package server

import (
	"context"
	"net/http"
	"time"

	"sema/engine"
)

// renew gives a permit a new lease.
func (s *Server) renew(w http.ResponseWriter, r *http.Request, who *Who) error {
	q := struct {
		Lease *seconds `json:"lease_seconds"`
	}{}
	if err := readJSON(w, r, &q, false); err != nil {
		return err
	}
	lease, err := (&acquireRequest{Limit: 1, Lease: q.Lease}).check()
	if err != nil {
		return err
	}
	p, leave, e, err := s.holding(r, who)
	if err != nil {
		return err
	}
	defer leave()
	p.mu.Lock()
	if q.Lease == nil && e.lease > 0 {
		lease = e.lease
	}
	e.lease = lease
	p.mu.Unlock()
	a, sent, err := p.order(r.Context(), e, engine.Request{Kind: engine.Renew, ID: e.id, Lease: lease})
	switch {
	case err != nil:
		return err
	case a.Status == engine.Revoked:
		return errRevoked
	case a.Status != engine.Granted:
		p.forget(e)
		return errGone
	}
	p.mu.Lock()
	e.until, e.token, e.slot = sent.Add(a.Lease), a.Token, a.Slot
	answer := e.describe(p.name, r.PathValue("id"))
	p.mu.Unlock()
	return writeJSON(w, http.StatusOK, answer)
}

// release gives back a permit.
func (s *Server) release(w http.ResponseWriter, r *http.Request, who *Who) error {
	p, leave, e, err := s.holding(r, who)
	if err != nil {
		return err
	}
	defer leave()
	a, _, err := p.order(r.Context(), e, engine.Request{Kind: engine.Release, ID: e.id})
	if err != nil {
		return err
	}
	p.forget(e)
	if a.Status != engine.Done {
		return errGone
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// holding is the permit that a request names.
func (s *Server) holding(r *http.Request, who *Who) (p *place, leave func(), e *entry, err error) {
	name, err := s.nameOf(r, who)
	if err != nil {
		return nil, nil, nil, err
	}
	id, err := callerID(r)
	if err != nil {
		return nil, nil, nil, err
	}
	p, leave, err = s.place(name)
	if err != nil {
		return nil, nil, nil, err
	}
	number := numberOf(who, id)
	permit, ok, err := p.find(r.Context(), number)
	if err == nil && !ok {
		err = errGone
	}
	if err != nil {
		leave()
		return nil, nil, nil, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if e = p.entries[number]; e != nil && e.state == held {
		return p, leave, e, nil
	}
	k, err := p.desk(engine.Client{Host: s.self.Host, PID: s.self.PID, Label: s.self.Label})
	if err != nil {
		leave()
		return nil, nil, nil, err
	}
	e = &entry{desk: k, id: permit, state: held, changed: make(chan struct{}), slot: -1}
	if old := p.entries[number]; old != nil {
		old.desk.entries--
	}
	p.entries[number] = e
	k.entries++
	return p, leave, e, nil
}

// order has a request about a permit carried out, and waits for the answer.
func (p *place) order(ctx context.Context, e *entry, q engine.Request) (a engine.Answer, sent time.Time, err error) {
	type outcome struct {
		a    engine.Answer
		sent time.Time
		err  error
	}
	done := make(chan outcome, 1)
	p.mu.Lock()
	e.desk.send(op{request: q, done: func(a engine.Answer, sent time.Time, err error) { done <- outcome{a, sent, err} }})
	p.mu.Unlock()
	select {
	case o := <-done:
		return o.a, o.sent, o.err
	case <-ctx.Done():
		return a, sent, ctx.Err()
	}
}

// forget drops a permit that is over.
func (p *place) forget(e *entry) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if e.state == held {
		e.end(errGone)
	}
	if p.entries[e.id.Number] == e {
		delete(p.entries, e.id.Number)
		e.desk.entries--
	}
}
