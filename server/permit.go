package server

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"net/http"
	"strings"
	"time"

	"sema/access"
	"sema/engine"
	"sema/internal/client"
	"sema/internal/protocol"
	"sema/internal/rights"
	"sema/internal/wire"
)

// named is the first part of the ids of all permits of the JSON API. No session has this
// name.
const named = "api"

// permit is a permit of the JSON API, from the ask to its end. It is guarded by the loop's
// lock.
type permit struct {
	client.Named
	err     error         // the reason of its end
	changed chan struct{} // closed and replaced at each change

	told  bool          // the observer knows that it is held
	since time.Duration // when it was told so
}

func newPermit(wish client.Wish) *permit {
	p := &permit{Named: client.Named{Wish: wish}, changed: make(chan struct{})}
	p.Owner = p
	return p
}

// signal wakes the requests that wait for a change.
func (p *permit) signal() {
	close(p.changed)
	p.changed = make(chan struct{})
}

// end records the reason of the permit's end.
func (p *permit) end(err error) {
	p.err = err
	p.signal()
}

// permit returns this server's permit with a number, or nil. The lock is held.
func (x *semaphore) permit(number uint64) *permit {
	if p := x.names.Find(number); p != nil {
		return p.Owner.(*permit)
	}
	return nil
}

// The reasons for an ask or a permit to end.
var (
	errNone    = problem(http.StatusTooManyRequests, "unavailable", "no permit was free, or none in time").after(time.Second)
	errSets    = problem(http.StatusTooManyRequests, "too-many-sets", "callers wait for %d other combinations of pools", engine.MaxPools).after(time.Second)
	errPaused  = problem(http.StatusLocked, "paused", "an operator has paused the semaphore: nobody is granted a permit").after(5 * time.Second)
	errRevoked = problem(http.StatusGone, "revoked", "an operator has revoked the permit")
	errGone    = problem(http.StatusGone, "gone", "there is no such permit: it was never granted, was given back, or its lease has ended")
)

// tooHeavy says that a weight is above the cap of a key, or above the limit if the key is "".
func tooHeavy(weight, bound int, key engine.Key) error {
	if key == "" {
		return problem(http.StatusConflict, "too-heavy", "weight %d is above the limit %d: it could never be granted", weight, bound)
	}
	p := problem(http.StatusConflict, "too-heavy", "weight %d is above the %d that key %q may hold: it could never be granted", weight, bound, key.String())
	p.At = &wire.At{Key: key, Cap: bound}
	return p
}

// tooMuch says that there is less of a pool than an ask takes, or no such pool. at counts the pools that it takes, from 1 on.
func tooMuch(name string, takes engine.Pools, at, limit int) error {
	pool := strings.Split(takes.Names(), ",")[at-1]
	p := problem(http.StatusConflict, "too-heavy", "%d of pool %q is above the %d that there are: it could never be granted", takes.Of(pool), pool, limit)
	if limit == 0 {
		p = problem(http.StatusNotFound, "no-pool", "%q has no pool %q", name, pool)
	}
	p.At = &wire.At{Pool: pool, Limit: limit}
	return p
}

// permitJSON is the answer with a permit.
type permitJSON struct {
	Name      string       `json:"name"`
	ID        string       `json:"id"`
	Permit    string       `json:"permit"`
	Weight    int          `json:"weight"`
	Key       engine.Key   `json:"key"`
	Takes     engine.Pools `json:"takes"`
	Token     int64        `json:"token"`
	Slot      *int         `json:"slot"`
	WouldWait bool         `json:"would_wait,omitempty"` // if the limit were not only watched
	Lease     float64      `json:"lease_seconds"`
	Limit     int          `json:"limit"` // these three as stored
	Caps      []int        `json:"caps"`
	Pools     engine.Pools `json:"pools"`
}

// describe makes the answer with a held permit. The lock is held.
func (x *semaphore) describe(p *permit, id string) permitJSON {
	j := permitJSON{
		Name: x.name, ID: id, Permit: p.Wish.ID.String(), Weight: p.Wish.ID.Weight, Key: p.Wish.Key, Takes: p.Wish.Takes, Token: p.Token(),
		Lease: max(0, p.Valid()-x.loop.Now()).Seconds(),
		Limit: x.stored.Limit, Caps: x.stored.Caps.List(), Pools: x.stored.Pools,
	}
	if slot := p.Slot(); slot >= 0 {
		j.Slot = &slot
	} else {
		j.WouldWait = slot == protocol.WouldWait
	}
	return j
}

// callerID is the caller's id of a permit.
func callerID(r *http.Request) (string, error) {
	id := r.PathValue("id")
	if strings.TrimSpace(id) == "" {
		return "", &engine.ArgumentError{What: "id", Value: id, Want: "1 to 128 bytes that are not all blanks"}
	}
	return id, engine.ValidateText("id", id, 128)
}

// numberOf makes the number of a permit from the caller's id. It is the same on every
// server, and after a restart.
func numberOf(who *access.Who, id string) uint64 {
	hash := sha256.Sum256([]byte(who.Name + "\x00" + id))
	return binary.BigEndian.Uint64(hash[:]) >> 4
}

// acquire grants a permit, or waits for one. Without an id in the path, the server makes one.
func (s *Server) acquire(w http.ResponseWriter, r *http.Request, who *access.Who) error {
	began, id := time.Now(), rand.Text()
	if r.PathValue("id") != "" {
		var err error
		if id, err = callerID(r); err != nil {
			return err
		}
	}
	ask, err := s.ask(w, r, who, id, false)
	if err != nil {
		return err
	}
	defer ask.end()
	err = ask.await(r.Context(), nil)
	ask.tellAsked(err, time.Since(began))
	gone := ask.settle(r.Context(), err == nil)
	switch {
	case gone:
		return r.Context().Err() // the client is gone
	case err == errNone:
		return ask.x.unavailable(r.Context(), ask.p.Wish.Takes)
	case err != nil:
		return err
	}
	s.stats.grants.add(time.Since(began))
	return writeJSON(w, ask.answer)
}

// asking is a request that waits for a permit.
type asking struct {
	x    *semaphore
	p    *permit
	id   string // the caller's id
	wait time.Duration
	end  func()

	answer     permitJSON // with the permit, once await has seen it held
	named      bool       // the caller chose the id, so it can ask another server for the permit
	redirected bool       // the caller was told to do so
}

// ask reads a request for a permit and asks for the permit. If it succeeds, the caller
// calls settle and then end. With keep the server renews the permit.
func (s *Server) ask(w http.ResponseWriter, r *http.Request, who *access.Who, id string, keep bool) (*asking, error) {
	name, err := s.nameOf(r, who)
	if err != nil {
		return nil, err
	}
	q := acquireRequest{Weight: 1}
	if err := readJSON(w, r, &q, true); err != nil {
		return nil, err
	}
	terms, target, err := q.check()
	if err != nil {
		return nil, err
	}
	if s.waiters.Add(1) > int64(s.options.MaxWaiters) {
		s.waiters.Add(-1)
		return nil, problem(http.StatusServiceUnavailable, "too-many-waiters", "%d requests wait already", s.options.MaxWaiters).unchanged().soon(5 * time.Second)
	}
	x, done, err := s.semaphore(name)
	if err != nil {
		s.waiters.Add(-1)
		return nil, err
	}
	wish := client.Wish{
		Terms: terms, Target: target,
		ID:   engine.ID{Client: named, Number: numberOf(who, id), Weight: int(q.Weight), Slot: q.Slot},
		Who:  engine.Client{Host: rights.Host(r), Label: labelOf(who, q.Label), Caller: id, Lease: terms.Lease},
		Wait: q.Wait > 0,
	}
	if keep {
		wish.Renew, wish.Margin = terms.Lease/3, terms.Lease/10
	}
	err = x.state(r.Context(), q.stated(terms), q.OnConflict)
	var p *permit
	if err == nil {
		p, err = x.begin(wish, q.Priority.duration())
	}
	if err != nil {
		done()
		s.waiters.Add(-1)
		return nil, err
	}
	end := func() { done(); s.waiters.Add(-1) }
	return &asking{x: x, p: p, id: id, wait: q.Wait.duration(), end: end, named: r.PathValue("id") != ""}, nil
}

// labelOf is the label of a permit's holder: the token's name and the caller's label.
func labelOf(who *access.Who, label string) string {
	if who == local {
		return label
	}
	return strings.TrimSpace(who.Name + " " + label)
}

// begin asks for a permit, or joins the requests that have asked for the same one: client.Names decides which.
func (x *semaphore) begin(wish client.Wish, priority time.Duration) (*permit, error) {
	l := &x.loop
	l.Lock()
	if old := x.permit(wish.ID.Number); old != nil && (old.Wish.ID != wish.ID || old.Wish.Target != wish.Target) {
		l.Unlock()
		return nil, problem(http.StatusConflict, "another", "the id is in use for a permit of weight %d%s", old.Wish.ID.Weight, also(old.Wish.ID.Slot, old.Wish.Key, old.Wish.Takes))
	}
	old, now := x.permit(wish.ID.Number), l.Now()
	fresh := newPermit(wish)
	fresh.Priority = priority
	p := x.names.Ask(now, &fresh.Named).Owner.(*permit)
	if old != nil && old.Over {
		p.told, p.since, old.told = old.told, old.since, false // the new ask asks for the permit that there is
		old.end(errGone)
	}
	l.Start(now)
	return p, nil
}

// also is what a permit has beside its weight, in words.
func also(slot bool, key engine.Key, takes engine.Pools) (text string) {
	if key != "" {
		text += fmt.Sprintf(", of key %q", key.String())
	}
	if takes != "" {
		text += fmt.Sprintf(", with %s of pools", takes)
	}
	if slot {
		text += ", with a slot"
	}
	return text
}

// await waits until the permit is held. It waits in the queue for at most a.wait. The
// engine has stepTime more to answer. await calls progress, if not nil, after each change,
// without the lock.
func (a *asking) await(ctx context.Context, progress func(state client.State, ahead int) error) error {
	ctx, cancel := context.WithTimeout(ctx, a.wait+stepTime)
	defer cancel()
	timer := time.NewTimer(a.wait)
	defer timer.Stop()
	for late := false; ; {
		a.x.loop.Lock()
		a.p = a.p.Latest().Owner.(*permit)
		state, err, changed, ahead := a.p.State(), a.p.err, a.p.changed, a.p.Ahead()
		if state == client.Held {
			a.answer = a.x.describe(a.p, a.id)
		}
		a.x.loop.Unlock()
		switch {
		case err != nil:
			return err
		case state == client.Held:
			return nil
		case state == client.Waiting && late:
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
		case <-a.x.server.done:
			a.redirected = a.named
			return closing()
		}
	}
}

// settle ends a request's use of its permit. held says that the caller now receives the
// permit. gone is true if the caller has disconnected.
func (a *asking) settle(ctx context.Context, held bool) (gone bool) {
	l := &a.x.loop
	l.Lock()
	gone = ctx.Err() != nil
	if a.redirected && !gone {
		a.x.names.Part(&a.p.Named)
	} else {
		a.x.names.Leave(l.Now(), &a.p.Named, held && !gone)
	}
	l.Start(l.Now())
	return gone
}
