package server

import (
	"context"
	"sync"
	"time"

	"sema/engine"
	"sema/internal/client"
	"sema/internal/loop"
)

// semaphores are those that callers of the JSON API use, by name.
type semaphores struct {
	mu     sync.Mutex
	byName map[string]*semaphore
	closed bool
	using  sync.WaitGroup // requests at hand
}

// semaphore is one semaphore to the callers of the JSON API. They are callers of the
// client machine, as those of package sema are, but name their permits: so any
// server of the same engine finds them, and they renew by themselves.
type semaphore struct {
	server *Server
	name   string
	loop   loop.Loop
	users  int       // requests at hand; guarded by semaphores.mu
	used   time.Time // when the last one ended; likewise

	// Guarded by the loop's lock.
	names    *client.Names // the permits that this server knows of
	paused   bool          // as of pausedAt
	pausedAt time.Time
}

// semaphoreIdle is how long the session of a semaphore is kept that nobody uses.
const semaphoreIdle = time.Minute

// semaphore finds or makes what belongs to a semaphore. The caller calls leave in
// the end.
func (s *Server) semaphore(name string) (x *semaphore, leave func(), err error) {
	all := &s.semaphores
	all.mu.Lock()
	defer all.mu.Unlock()
	if all.closed || s.closed.Load() {
		return nil, nil, closing()
	}
	x = all.byName[name]
	if x == nil {
		x = &semaphore{server: s, name: name}
		config := func(engine.Session) client.Config {
			return client.Config{Terms: client.Terms{Limit: 1, Lease: defaultLease}, Detached: true}
		}
		if err := x.loop.Open(s.engine, name, s.self, loop.Owner{Observe: x.observe}, config); err != nil {
			return nil, nil, err
		}
		x.names = client.NewNames(x.loop.Machine)
		all.byName[name] = x
	}
	x.users++
	all.using.Add(1)
	return x, func() {
		all.mu.Lock()
		x.users--
		x.used = time.Now()
		all.mu.Unlock()
		all.using.Done()
	}, nil
}

// observe takes in what happened to a permit.
func (x *semaphore) observe(e client.Event) func() {
	if e.A == nil {
		return nil // the limit is another
	}
	p := e.A.Owner.(*permit)
	switch e.Kind {
	case client.Granted:
		p.poke()
	case client.Denied, client.Lost:
		x.names.End(&p.Named)
		p.end(reason(x, e))
	case client.Queued:
		p.poke()
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

// reason is why there is no permit, or no more.
func reason(x *semaphore, e client.Event) error {
	switch e.Reason {
	case client.Refused:
		return errNone
	case client.TooHeavy:
		return tooHeavy(e.A.Weight(), e.Limit, e.A.Owner.(*permit).Wish.Key)
	case client.Revoked:
		return errRevoked
	case client.EngineFailed:
		return x.loop.Named("acquire", e.Err)
	case client.Closed:
		return closing()
	}
	return errGone
}

// order has a request carried out, and waits for its outcome. begin gives it to the
// machine, with the waiter as its owner, or says why there is none.
func (x *semaphore) order(ctx context.Context, op string, begin func(now time.Duration, w *loop.Waiter) (*client.Order, error)) (engine.Status, error) {
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

// find is a permit that some server has given under a number, as the engine has it.
func (x *semaphore) find(ctx context.Context, number uint64) (engine.ID, engine.Holder, error) {
	ctx, cancel := context.WithTimeout(ctx, stepTime)
	defer cancel()
	st, err := x.loop.Session().State(ctx)
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

// stopped reports whether the semaphore is paused, as of a second ago at most.
func (x *semaphore) stopped(ctx context.Context) bool {
	x.loop.Lock()
	fresh, paused := time.Since(x.pausedAt) < time.Second, x.paused
	x.loop.Unlock()
	if fresh {
		return paused
	}
	ctx, cancel := context.WithTimeout(ctx, stepTime)
	defer cancel()
	st, err := x.loop.Session().State(ctx)
	if err != nil {
		return false
	}
	x.loop.Lock()
	defer x.loop.Unlock()
	x.paused, x.pausedAt = st.Paused, time.Now()
	return x.paused
}

// close sends what is owed to the engine, and closes the session. The permits of
// callers stay theirs.
func (x *semaphore) close() {
	_ = x.loop.Close(context.Background(), func(time.Duration) { x.names.Forget() })
}

// sweep closes the sessions of semaphores that nobody uses.
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

// close waits for the requests at hand, which have been told to end, and closes all
// sessions.
func (all *semaphores) close() {
	all.mu.Lock()
	all.closed = true
	all.mu.Unlock()
	all.using.Wait()
	var closed sync.WaitGroup
	for _, x := range all.byName { // nobody changes it any more
		closed.Go(x.close)
	}
	closed.Wait()
}
