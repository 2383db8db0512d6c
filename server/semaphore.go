package server

import (
	"context"
	"net/http"
	"sync"
	"time"

	"sema/engine"
	"sema/internal/client"
	"sema/internal/loop"
	"sema/internal/protocol"
)

// semaphores are the semaphores in use by the JSON API.
type semaphores struct {
	mu       sync.Mutex
	byName   map[string]*semaphore
	closed   bool
	requests sync.WaitGroup // running requests
}

// semaphore is a semaphore in use by the JSON API. The API's callers use the client
// machine as callers of package sema do, with two differences: they choose the ids of
// their permits, so that every server of the engine finds these, and they renew the
// permits themselves.
type semaphore struct {
	server *Server
	name   string
	loop   loop.Loop
	users  int       // running requests; guarded by semaphores.mu
	used   time.Time // the end of the last request; guarded by semaphores.mu

	// Guarded by the loop's lock.
	names  *client.Names // the permits that this server knows
	stored stated        // what the engine had last
	stated map[stated]bool
	seen   engine.State // at seenAt
	seenAt time.Time
}

// semaphoreIdle is how long an unused semaphore keeps its session.
const semaphoreIdle = time.Minute

// semaphore returns the semaphore with a name, and opens its session if necessary. The
// caller calls done at the end.
func (s *Server) semaphore(name string) (x *semaphore, done func(), err error) {
	all := &s.semaphores
	all.mu.Lock()
	defer all.mu.Unlock()
	if all.closed || s.closed.Load() {
		return nil, nil, closing()
	}
	x = all.byName[name]
	if x == nil {
		x = &semaphore{server: s, name: name, stated: map[stated]bool{}}
		config := func(protocol.Session) client.Config {
			return client.Config{Terms: client.Terms{Lease: defaultLease}, Detached: true} // without a limit, so that each stored one is told
		}
		if err := x.loop.Open(s.engine, name, s.self, loop.Owner{Observe: x.observe}, config); err != nil {
			return nil, nil, err
		}
		x.names = client.NewNames(x.loop.Machine)
		all.byName[name] = x
	}
	x.users++
	all.requests.Add(1)
	return x, func() {
		all.mu.Lock()
		x.users--
		x.used = time.Now()
		all.mu.Unlock()
		all.requests.Done()
	}, nil
}

// observe handles an event of a permit.
func (x *semaphore) observe(e client.Event) func() {
	if e.A == nil {
		x.stored = stated{Limit: e.Limit, Caps: e.Caps, Pools: e.Pools}
		return nil
	}
	p := e.A.Owner.(*permit)
	switch e.Kind {
	case client.Granted:
		p.signal()
	case client.Denied, client.Lost:
		x.tellOver(p, lostFor(e.Reason))
		x.names.End(&p.Named)
		p.end(reason(x, e))
	case client.Queued:
		p.signal()
		if p.Users == 0 {
			return func() {
				x.loop.Lock()
				x.names.DropUnwanted(x.loop.Now(), &p.Named)
				x.loop.Start(x.loop.Now())
			}
		}
	}
	return nil
}

// reason is the error for the end of an ask or a permit.
func reason(x *semaphore, e client.Event) error {
	switch e.Reason {
	case client.Refused:
		return errNone
	case client.TooHeavy:
		t := e.A.Owner.(*permit).Wish.Target
		if e.Pool > 0 {
			return tooMuch(x.name, t.Takes, e.Pool, e.Limit)
		}
		return tooHeavy(e.A.Weight(), e.Limit, t.Key.First(e.Depth))
	case client.TooManySets:
		return errSets
	case client.NamedForAnother: // at another server
		return problem(http.StatusConflict, "another", "the id is in use for a permit of another key, or of other pools")
	case client.Revoked:
		return errRevoked
	case client.EngineFailed:
		return x.loop.Named("acquire", e.Err)
	case client.Closed:
		return closing()
	}
	return errGone
}

// order executes a request and waits for the outcome. begin passes the request to the
// machine, with the waiter as its owner, or fails.
func (x *semaphore) order(ctx context.Context, op string, begin func(now time.Duration, w *loop.Waiter) (*client.Order, error)) (protocol.Status, error) {
	w := &loop.Waiter{}
	x.loop.Lock()
	o, err := begin(x.loop.Now(), w)
	if err != nil {
		x.loop.Unlock()
		return 0, err
	}
	x.loop.Start(x.loop.Now())
	return x.loop.Result(ctx, op, w, o)
}

// look reads the semaphore from the engine.
func (x *semaphore) look(ctx context.Context) (engine.State, error) {
	ctx, cancel := context.WithTimeout(ctx, stepTime)
	defer cancel()
	return x.loop.Session().State(ctx)
}

// find returns the engine's permit with a number, whichever server granted it.
func (x *semaphore) find(ctx context.Context, number uint64) (engine.ID, engine.Holder, error) {
	st, err := x.look(ctx)
	if err != nil {
		return engine.ID{}, engine.Holder{}, err
	}
	for _, h := range st.Holders {
		if id, err := engine.ParseID(h.ID); err == nil && id.Client == named && id.Number == number {
			return id, h, nil
		}
	}
	return engine.ID{}, engine.Holder{}, errGone
}

// unavailable is errNone or errPaused, by a look that may be a second old. It says when a cooldown and what the permit takes of
// rates allow it, if that is later than errNone says.
func (x *semaphore) unavailable(ctx context.Context, takes engine.Pools) error {
	x.loop.Lock()
	st, at := x.seen, x.seenAt
	x.loop.Unlock()
	if time.Since(at) >= time.Second {
		var err error
		if st, err = x.look(ctx); err != nil {
			return errNone
		}
		at = time.Now()
		x.loop.Lock()
		x.seen, x.seenAt = engine.State{Paused: st.Paused, Cooldown: st.Cooldown, Pools: st.Pools}, at
		x.loop.Unlock()
	}
	if st.Paused {
		return errPaused
	}
	wait, p := time.Duration(0), *errNone
	if st.Cooldown != nil {
		wait = st.Cooldown.Left
	}
	for _, s := range st.Pools {
		if lacks := min(s.Used, s.Limit) + takes.Of(s.Pool) - s.Limit; s.Per > 0 && takes.Of(s.Pool) > 0 && lacks > 0 {
			more := float64(lacks-1) * float64(s.Per) / float64(s.Back)
			wait = max(wait, s.Next+time.Duration(min(more, float64(366*engine.MaxPer))))
		}
	}
	return p.after(max(time.Second, wait-time.Since(at)))
}

// close sends the remaining requests to the engine and closes the session. Callers keep
// their permits.
func (x *semaphore) close() {
	_ = x.loop.Close(context.Background(), func(time.Duration) { x.names.Forget() })
}

// sweep closes the sessions of unused semaphores.
func (all *semaphores) sweep(s *Server, now time.Time) {
	all.mu.Lock()
	defer all.mu.Unlock()
	for name, x := range all.byName {
		x.loop.Lock()
		idle := x.users == 0 && x.names.Len() == 0 && now.Sub(x.used) > semaphoreIdle
		x.loop.Unlock()
		if idle {
			delete(all.byName, name)
			s.ended.Go(x.close)
		}
	}
}

// close waits for the running requests, which are ending, and closes all sessions.
func (all *semaphores) close() {
	all.mu.Lock()
	all.closed = true
	all.mu.Unlock()
	all.requests.Wait()
	var closed sync.WaitGroup
	for _, x := range all.byName { // it does not change after closed was set
		closed.Go(x.close)
	}
	closed.Wait()
}
