package sema

import (
	"cmp"
	"context"

	"sema/engine"
)

// Operator does to one semaphore what operators do: it looks, sets the limit,
// pauses, and takes back permits by their ids. It needs no limit, and acquires
// nothing. It is safe for concurrent use.
//
// A call that cannot reach the engine is made again for three seconds, and then
// fails with ErrEngine. With ErrClosed it fails after Close, and when the
// engine is closed. No method creates a semaphore, but SetLimit.
type Operator struct {
	s *Semaphore // its limit is 0: it never acquires
}

// Operate prepares the operation of a semaphore. It does no I/O, so it fails only
// on a name out of range, with an *ArgumentError.
func Operate(e Engine, name string) (*Operator, error) {
	s, err := open(e, name, 0, Options{}.withDefaults())
	if err != nil {
		return nil, err
	}
	return &Operator{s}, nil
}

// Name is the name given to Operate.
func (o *Operator) Name() string { return o.s.name }

// State is a snapshot, as Semaphore.State is. It fails with ErrNotFound when
// there is no such semaphore.
func (o *Operator) State(ctx context.Context) (State, error) {
	st, err := o.s.State(ctx)
	if err == nil && st.Limit == 0 {
		err = o.absent()
	}
	return st, err
}

// SetLimit stores the limit, 1 … MaxLimit, for all clients and for good: it
// outlives idleness, until UnsetLimit. A semaphore that does not exist is created.
// A larger limit serves waiters at once; a smaller one revokes nobody, and grants
// resume when less than it is held. Waiters that weigh more than it fail with a
// *WeightError.
func (o *Operator) SetLimit(ctx context.Context, limit int) error {
	if err := engine.ValidateLimit(limit); err != nil {
		return err
	}
	return o.do(ctx, "limit", engine.Request{Kind: engine.SetLimit, Limit: limit, Pin: true})
}

// SetLimits is SetLimit that stores the most weight that a key may hold as well (see
// Options.PerKey), 1 … MaxLimit; 0 ends that. SetLimit leaves it as it is.
func (o *Operator) SetLimits(ctx context.Context, limit, perKey int) error {
	if err := cmp.Or(engine.ValidateLimit(limit), engine.ValidateRange("", "limit per key", perKey, 0, MaxLimit)); err != nil {
		return err
	}
	if perKey == 0 {
		perKey = -1
	}
	return o.do(ctx, "limit", engine.Request{Kind: engine.SetLimit, Limit: limit, PerKey: perKey, Pin: true})
}

// UnsetLimit ends what SetLimit began: the limit stays while the semaphore is in
// use, and is forgotten when it has been idle. It fails with ErrNotFound when
// there is no such semaphore.
func (o *Operator) UnsetLimit(ctx context.Context) error {
	return o.do(ctx, "unset limit", engine.Request{Kind: engine.UnsetLimit})
}

// Pause stops all grants, until Unpause: a holder keeps its permit, a waiter goes
// on waiting, and newcomers queue. It outlives idleness, as SetLimit does. It fails
// with ErrNotFound when there is no such semaphore: one that nobody has used
// yet gets its limit from SetLimit first.
func (o *Operator) Pause(ctx context.Context) error {
	return o.do(ctx, "pause", engine.Request{Kind: engine.Pause})
}

// Unpause ends what Pause began, and serves the waiters. It fails with ErrNotFound
// when there is no such semaphore.
func (o *Operator) Unpause(ctx context.Context) error {
	return o.do(ctx, "unpause", engine.Request{Kind: engine.Unpause})
}

// Remove forgets the semaphore: the next user's limit counts. It fails with
// ErrInUse while somebody holds a permit, waits for one, or keeps one (see
// Options.Keep), and with ErrNotFound when there is no such semaphore. A removal
// that was made twice, because the answer to the first was lost, counts as
// done if the second found nothing.
func (o *Operator) Remove(ctx context.Context) error {
	return o.do(ctx, "remove", engine.Request{Kind: engine.Remove})
}

// Revoke has the holder of a permit told, at its next renewal, that it lost
// the permit. The weight is free when the holder has released it, or when its
// lease has ended. It fails with ErrLost when there is no such permit, and with an
// *ArgumentError when the id is none.
func (o *Operator) Revoke(ctx context.Context, id string) error {
	return o.doTo(ctx, "revoke", engine.Revoke, id)
}

// Release gives back a permit by its id, whoever holds it, at once. Its
// holder learns of that when it renews, which it is told to do now: Revoke is the
// gentle way. An id may meanwhile be that of the next caller of its process. It
// fails as Revoke does.
func (o *Operator) Release(ctx context.Context, id string) error {
	return o.doTo(ctx, "release", engine.Release, id)
}

func (o *Operator) doTo(ctx context.Context, op string, kind engine.Kind, id string) error {
	parsed, err := engine.ParseID(id)
	if err != nil {
		return err
	}
	return o.do(ctx, op, engine.Request{Kind: kind, ID: parsed})
}

func (o *Operator) do(ctx context.Context, op string, r engine.Request) error {
	status, err := o.s.loop.Ask(ctx, op, r)
	switch {
	case err != nil:
		return err
	case status == engine.InUse:
		return named(ErrInUse, o.s.name)
	case status == engine.Gone && r.ID.Client != "":
		return noPermit(o.s.name, r.ID)
	case status == engine.Gone:
		return o.absent()
	}
	return nil
}

func (o *Operator) absent() error { return named(ErrNotFound, o.s.name) }

// Close waits for a call that is under way, for three seconds at most. The engine
// stays open. Closing again does nothing.
func (o *Operator) Close() error { return o.s.Close() }
