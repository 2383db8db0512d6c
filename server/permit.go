package server

import (
	"context"
	"net"
	"net/http"
	"strings"
	"time"

	"sema/engine"
)

// The reasons why there is no permit.
var (
	errNone    = problem(http.StatusTooManyRequests, "unavailable", "no permit was free, or none in time").after(time.Second)
	errPaused  = problem(http.StatusLocked, "paused", "an operator has paused the semaphore: nobody is granted a permit").after(5 * time.Second)
	errRevoked = problem(http.StatusGone, "revoked", "an operator has revoked the permit")
	errGone    = problem(http.StatusGone, "gone", "there is no such permit: it was never granted, was given back, or its lease has ended")
)

func tooHeavy(weight int) error {
	return problem(http.StatusConflict, "too-heavy", "weight %d is above the limit: it could never be granted", weight)
}

// permitJSON is a permit as its holder sees it.
type permitJSON struct {
	Name   string  `json:"name"`
	ID     string  `json:"id"`
	Permit string  `json:"permit"`
	Weight int     `json:"weight"`
	Token  int64   `json:"token"`
	Slot   *int    `json:"slot"`
	Lease  float64 `json:"lease_seconds"`
}

// describe is what to tell of a permit that is held. The lock is held.
func (e *entry) describe(name, id string) permitJSON {
	j := permitJSON{
		Name: name, ID: id, Permit: e.id.String(), Weight: e.id.Weight, Token: e.token,
		Lease: max(0, time.Until(e.until)).Seconds(),
	}
	if e.slot >= 0 {
		slot := e.slot
		j.Slot = &slot
	}
	return j
}

// callerID is the id that the caller gave to a permit.
func callerID(r *http.Request) (string, error) {
	id := r.PathValue("id")
	if id == "" {
		return "", &engine.ArgumentError{What: "id", Value: id, Want: "1 to 128 bytes"}
	}
	return id, engine.ValidateText("id", id, 128)
}

// acquire grants a permit, or waits for one.
func (s *Server) acquire(w http.ResponseWriter, r *http.Request, who *Who) error {
	id, err := callerID(r)
	if err != nil {
		return err
	}
	return s.acquireAs(w, r, who, id)
}

// acquireAny is acquire under an id that the server makes.
func (s *Server) acquireAny(w http.ResponseWriter, r *http.Request, who *Who) error {
	return s.acquireAs(w, r, who, newID())
}

func (s *Server) acquireAs(w http.ResponseWriter, r *http.Request, who *Who, id string) error {
	e, p, leave, wait, err := s.wish(w, r, who, id)
	if err != nil {
		return err
	}
	defer leave()
	err = p.await(r.Context(), e, wait, nil)
	p.mu.Lock()
	answer := e.describe(p.name, id)
	gone := r.Context().Err() != nil
	p.give(e, err == nil && !gone)
	p.mu.Unlock()
	switch {
	case gone:
		return r.Context().Err() // nobody reads it
	case err == errNone && p.stopped(r.Context()):
		return errPaused
	case err != nil:
		return err
	}
	return writeJSON(w, http.StatusOK, answer)
}

// wish reads a request for a permit and begins to ask for it. With an error
// nothing has begun; else leave and give are to be called.
func (s *Server) wish(w http.ResponseWriter, r *http.Request, who *Who, id string) (e *entry, p *place, leave func(), wait time.Duration, err error) {
	fail := func(err error) (*entry, *place, func(), time.Duration, error) { return nil, nil, nil, 0, err }
	name, err := s.nameOf(r, who)
	if err != nil {
		return fail(err)
	}
	q := acquireRequest{}
	if err := readJSON(w, r, &q, true); err != nil {
		return fail(err)
	}
	lease, err := q.check()
	if err != nil {
		return fail(err)
	}
	if s.waiters.Add(1) > int64(s.options.MaxWaiters) {
		s.waiters.Add(-1)
		p := problem(http.StatusServiceUnavailable, "too-many-waiters", "%d requests wait already", s.options.MaxWaiters)
		p.NotExecuted, p.Temporary = true, true
		return fail(p.after(5 * time.Second))
	}
	p, leavePlace, err := s.place(name)
	if err != nil {
		s.waiters.Add(-1)
		return fail(err)
	}
	leave = func() { leavePlace(); s.waiters.Add(-1) }
	if err := p.load(r.Context()); err != nil {
		leave()
		return fail(err)
	}
	e, err = p.begin(who, id, r.RemoteAddr, &q, lease)
	if err != nil {
		leave()
		return fail(err)
	}
	return e, p, leave, q.Wait.duration(), nil
}

// begin asks for a permit, or joins who asks for the same.
func (p *place) begin(who *Who, id, from string, q *acquireRequest, lease time.Duration) (*entry, error) {
	host, _, err := net.SplitHostPort(from)
	if err != nil {
		host = cut(from)
	}
	label := q.Label
	if who != local {
		label = strings.TrimSpace(who.Name + " " + label)
	}
	number := numberOf(who, id)
	p.mu.Lock()
	defer p.mu.Unlock()
	if e := p.entries[number]; e != nil && e.state != over {
		if e.id.Weight != q.Weight || e.id.Slot != q.Slot {
			return nil, problem(http.StatusConflict, "another", "the id is in use for a permit of weight %d, slot %t", e.id.Weight, e.id.Slot)
		}
		if e.state == held { // is it still?
			e.state, e.came, e.lease, e.wait = asking, time.Now(), lease, q.Wait > 0
			e.desk.ask(e)
		}
		e.refs++
		return e, nil
	}
	k, err := p.desk(engine.Client{Host: host, Label: label})
	if err != nil {
		return nil, err
	}
	e := &entry{
		desk: k, id: engine.ID{Client: k.inner.Client(), Number: number, Weight: q.Weight, Slot: q.Slot},
		limit: q.Limit, lease: lease, wait: q.Wait > 0, came: time.Now(), changed: make(chan struct{}), slot: -1, refs: 1,
	}
	if earlier, ok := p.known[number]; ok {
		delete(p.known, number)
		if earlier.Weight != q.Weight || earlier.Slot != q.Slot {
			return nil, problem(http.StatusConflict, "another", "the id is in use for a permit of weight %d, slot %t", earlier.Weight, earlier.Slot)
		}
		e.id = earlier
	}
	if old := p.entries[number]; old != nil {
		old.desk.entries--
	}
	p.entries[number] = e
	k.entries++
	k.ask(e)
	return e, nil
}

// await waits until a permit is held, for at most so long in the queue. The
// engine has some time more to say whether a permit is free. progress, if any,
// is called whenever something changed, without the lock.
func (p *place) await(ctx context.Context, e *entry, wait time.Duration, progress func(state entryState, ahead int) error) error {
	ctx, cancel := context.WithTimeout(ctx, wait+stepTime)
	defer cancel()
	timer := time.NewTimer(wait)
	defer timer.Stop()
	for late := false; ; {
		p.mu.Lock()
		state, err, changed, ahead := e.state, e.err, e.changed, e.ahead
		p.mu.Unlock()
		switch {
		case state == held:
			return nil
		case state == over:
			return err
		case state == queued && late:
			return errNone
		}
		if progress != nil {
			if err := progress(state, ahead); err != nil {
				return err
			}
		}
		select {
		case <-changed:
		case <-timer.C:
			late = true
		case <-ctx.Done():
			return ctx.Err()
		case <-p.server.done:
			return closing()
		}
	}
}

// give ends a request's interest in a permit. If nobody else has any, and no
// request has told its caller of the permit, it is given back: the caller may have
// asked again after its first connection broke, and the end of that one may come to
// light last. The lock is held.
func (p *place) give(e *entry, tell bool) {
	e.refs--
	e.told = e.told || tell
	if e.refs > 0 || e.told || e.state == over {
		return
	}
	e.desk.letGo(e, errGone)
}
