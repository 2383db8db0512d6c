package sema

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// Semaphore limits how much weight is held at once under one name, together
// with every other client of the same engine. Create one per name and share
// it: it is safe for concurrent use, and its permits and waits share calls.
type Semaphore struct {
	name    string
	limit   int // as given to New
	options Options
	session Session
	client  string // the session's

	mu       sync.Mutex
	claims   map[string]*claim // waiting and held, by permit id
	number   uint64            // of the last claim
	stored   int               // the engine's limit as last seen; 0: not seen yet
	lookAt   time.Time         // when to ask again because a lease ends; zero: not
	lookAsOf time.Time         // how old that news is
	timer    *time.Timer       // runs tend at wake
	wake     time.Time         // when timer fires; zero: not armed
	closed   bool
	quit     chan struct{} // closed by Close
	busy     int           // acquisitions, calls and give-backs in progress
	idle     sync.Cond     // signalled when busy is 0; not a WaitGroup, because
	// a late Release may begin while Close waits

	calls    context.Context // see callContext
	callsEnd time.Time
	endCalls context.CancelFunc

	declaring chan struct{} // held while the Declare policy is carried out
	declared  bool          // it has been; guarded by declaring
}

// New prepares a semaphore called name, limited to limit unless the engine has
// another limit stored (see Options.OnConflict). It does no I/O, so it fails
// only on values out of range, with an *ArgumentError. A nil options means the
// defaults.
func New(engine Engine, name string, limit int, options *Options) (*Semaphore, error) {
	if engine == nil {
		return nil, &ArgumentError{"engine", nil, "an engine, such as redisengine.New or memengine.New"}
	}
	if options == nil {
		options = &Options{}
	}
	s := &Semaphore{name: name, limit: limit, options: options.withDefaults(), claims: map[string]*claim{}, quit: make(chan struct{}), declaring: make(chan struct{}, 1)}
	s.idle.L = &s.mu
	for _, err := range []error{ValidateName(name), ValidateLimit(limit), s.options.validate()} {
		if err != nil {
			return nil, err
		}
	}
	session, err := engine.Open(name, self(options.Label), s.onWake)
	if err != nil {
		return nil, err
	}
	s.session, s.client = session, session.Client()
	return s, nil
}

// Name is the name given to New.
func (s *Semaphore) Name() string { return s.name }

// String names the semaphore and its limit, for logs.
func (s *Semaphore) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	limit := s.limit
	if s.stored != 0 {
		limit = s.stored
	}
	return fmt.Sprintf("sema.Semaphore(%q, limit %d)", s.name, limit)
}

// Acquire is AcquireN with weight 1.
func (s *Semaphore) Acquire(ctx context.Context) (*Permit, error) { return s.AcquireN(ctx, 1) }

// AcquireN waits until weight n is free and everybody who came before has been
// served, and takes it. All of n is granted at once, or nothing.
//
// The wait ends with ctx: the error is then ErrUnavailable and ctx's own error
// at once. The permit's context is derived from ctx as well, so a deadline that
// is meant for the wait alone belongs into AcquireWithin. A first attempt that
// does not reach the engine fails with an *EngineError; once queued, a wait
// lasts through an outage of up to one lease. On any error nothing is held.
func (s *Semaphore) AcquireN(ctx context.Context, n int) (*Permit, error) {
	return s.acquire(ctx, n, -1)
}

// TryAcquire is TryAcquireN with weight 1.
func (s *Semaphore) TryAcquire(ctx context.Context) (*Permit, error) { return s.TryAcquireN(ctx, 1) }

// TryAcquireN takes weight n if it is free now and nobody waits for it, and
// fails with ErrUnavailable otherwise.
func (s *Semaphore) TryAcquireN(ctx context.Context, n int) (*Permit, error) {
	return s.acquire(ctx, n, 0)
}

// AcquireWithin is AcquireN that waits no longer than the given time; the
// permit's context is not bound by it. With a wait of 0 it is TryAcquireN.
func (s *Semaphore) AcquireWithin(ctx context.Context, n int, wait time.Duration) (*Permit, error) {
	if wait < 0 {
		return nil, &ArgumentError{"wait", wait, "0 or more"}
	}
	return s.acquire(ctx, n, wait)
}

// Do runs f while holding a permit. f's context ends when ctx does or the
// permit is lost; in the latter case the error is an ErrLost, joined with f's.
func (s *Semaphore) Do(ctx context.Context, f func(context.Context) error) error {
	p, err := s.Acquire(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = p.Release() }() // loss is reported below, the rest ends with the lease
	err = f(p.Context())
	if lost := p.Err(); lost != nil {
		return errors.Join(lost, err)
	}
	return err
}

// Drain takes whatever weight is free now as a single permit. With nothing
// free, or somebody waiting, it fails with ErrUnavailable.
func (s *Semaphore) Drain(ctx context.Context) (*Permit, error) {
	for {
		free, err := s.Available(ctx)
		if err != nil {
			return nil, err
		}
		if free == 0 {
			return nil, ErrUnavailable
		}
		// Somebody may have been quicker: then less is free, or nothing.
		p, err := s.TryAcquireN(ctx, free)
		var heavy *WeightError
		if err == nil || !errors.Is(err, ErrUnavailable) && !errors.As(err, &heavy) {
			return p, err
		}
		again, err := s.Available(ctx)
		if err != nil {
			return nil, err
		}
		if again >= free { // free, yet refused: others wait for it
			return nil, ErrUnavailable
		}
	}
}

// Resume takes up a permit that this or another process acquired, by its id,
// and renews it. The permit's context is derived from ctx. It fails with
// ErrLost when there is no such permit. Two processes that resume one permit
// hold it both: to pass it on, the first must let go of it.
func (s *Semaphore) Resume(ctx context.Context, id string) (*Permit, error) {
	parsed, err := ParseID(id)
	if err != nil {
		return nil, err
	}
	return s.resume(ctx, id, parsed.Weight)
}

// ReleaseID gives back a permit by its id, whoever holds it, at once. Its
// holder learns of that only at its next renewal: Revoke is the gentle way. It
// fails with ErrLost when there is no such permit.
func (s *Semaphore) ReleaseID(ctx context.Context, id string) error {
	if _, err := ParseID(id); err != nil {
		return err
	}
	if err := s.open(); err != nil {
		return err
	}
	found, err := s.session.Release(ctx, id)
	if err == nil && !found {
		err = fmt.Errorf("%w: %q has no permit %s", ErrLost, s.name, id)
	}
	return err
}

// Revoke has the holder of a permit told, at its next renewal, that it lost
// the permit. The weight is free when the holder has released it, or when its
// lease has ended. It fails with ErrLost when there is no such permit.
func (s *Semaphore) Revoke(ctx context.Context, id string) error {
	if _, err := ParseID(id); err != nil {
		return err
	}
	if err := s.open(); err != nil {
		return err
	}
	found, err := s.session.Revoke(ctx, id)
	if err == nil && !found {
		err = fmt.Errorf("%w: %q has no permit %s", ErrLost, s.name, id)
	}
	return err
}

// Limit is the limit stored in the engine, or the one given to New as long as
// the engine has none.
func (s *Semaphore) Limit(ctx context.Context) (int, error) {
	st, err := s.State(ctx)
	return st.Limit, err
}

// SetLimit stores the limit, 1 … MaxLimit, for all clients and for good: it
// outlives idleness. A larger limit serves waiters at once; a smaller one
// revokes nobody, and grants resume when less than it is held. Waiters that
// weigh more than it fail with a *WeightError.
func (s *Semaphore) SetLimit(ctx context.Context, limit int) error {
	if err := ValidateLimit(limit); err != nil {
		return err
	}
	if err := s.open(); err != nil {
		return err
	}
	return s.session.SetLimit(ctx, limit, true)
}

// Available is the weight that is free now: the limit less what is held, and
// never below 0. With others waiting, it is not for a newcomer to take.
func (s *Semaphore) Available(ctx context.Context) (int, error) {
	st, err := s.State(ctx)
	return max(0, st.Limit-st.Used), err
}

// Holders lists who holds permits now, in no particular order.
func (s *Semaphore) Holders(ctx context.Context) ([]Holder, error) {
	st, err := s.State(ctx)
	return st.Holders, err
}

// Waiters lists who waits now, in the order they will be served.
func (s *Semaphore) Waiters(ctx context.Context) ([]Waiter, error) {
	st, err := s.State(ctx)
	return st.Waiters, err
}

// State is a snapshot of all of it in one step.
func (s *Semaphore) State(ctx context.Context) (State, error) {
	if err := s.open(); err != nil {
		return State{}, err
	}
	st, err := s.session.State(ctx)
	if err == nil && st.Limit == 0 {
		st.Limit = s.limit
	}
	return st, err
}

// open fails with ErrClosed after Close.
func (s *Semaphore) open() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return ErrClosed
	}
	return nil
}

// Close ends every wait with ErrClosed, ends the contexts of the permits still
// held, gives them back and waits for that to finish, for a lease at most. The
// engine stays open. Further calls fail with ErrClosed; closing again does
// nothing.
func (s *Semaphore) Close() error {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return nil
	}
	s.closed = true
	close(s.quit)
	s.disarm()
	var permits []*Permit
	for _, c := range s.claims {
		if !c.issued {
			c.settle(ErrClosed) // its caller gives back
			continue
		}
		permits = append(permits, &c.permit)
	}
	s.mu.Unlock()
	var releases sync.WaitGroup
	for _, p := range permits {
		if s.options.Detached {
			p.abandon()
			continue
		}
		releases.Go(func() { _ = p.release(ErrClosed) })
	}
	releases.Wait()
	s.mu.Lock()
	for s.busy > 0 {
		s.idle.Wait()
	}
	if s.endCalls != nil {
		s.endCalls()
	}
	s.mu.Unlock()
	return s.session.Close()
}
