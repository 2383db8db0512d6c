package sema

import (
	"context"
	"fmt"
	"strings"

	"sema/engine"
)

// This file has what operators do: to permits by their ids, and to limits.

// ReleaseID gives back a permit by its id, whoever holds it, at once. Its
// holder learns of that when it renews, which it is told to do now: Revoke is the
// gentle way. An id may meanwhile be that of the next caller of its process. It
// fails with ErrLost when there is no such permit.
func (s *Semaphore) ReleaseID(ctx context.Context, id string) error {
	return s.operateOn(ctx, "release", engine.Release, id)
}

// Revoke has the holder of a permit told, at its next renewal, that it lost
// the permit. The weight is free when the holder has released it, or when its
// lease has ended. It fails with ErrLost when there is no such permit.
func (s *Semaphore) Revoke(ctx context.Context, id string) error {
	return s.operateOn(ctx, "revoke", engine.Revoke, id)
}

func (s *Semaphore) operateOn(ctx context.Context, op string, kind engine.Kind, id string) error {
	parsed, err := engine.ParseID(id)
	if err != nil {
		return err
	}
	status, err := s.loop.Ask(ctx, op, engine.Request{Kind: kind, ID: parsed})
	if err == nil && status == engine.Gone {
		err = noPermit(s.name, parsed)
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
// outlives idleness, until UnsetLimit. A larger limit serves waiters at once; a
// smaller one revokes nobody, and grants resume when less than it is held.
// Waiters that weigh more than it fail with a *WeightError.
func (s *Semaphore) SetLimit(ctx context.Context, limit int) error {
	if err := engine.ValidateLimit(limit); err != nil {
		return err
	}
	_, err := s.loop.Ask(ctx, "limit", engine.Request{Kind: engine.SetLimit, Limit: limit, Pin: true})
	return err
}

// UnsetLimit ends what SetLimit began: the limit stays while the semaphore is in
// use, and is forgotten when it has been idle. It fails with ErrNotFound when
// there is no such semaphore.
func (s *Semaphore) UnsetLimit(ctx context.Context) error {
	return s.operate(ctx, "unset limit", engine.UnsetLimit)
}

// Pause stops all grants, until Unpause: who holds a permit keeps it, who waits
// goes on waiting, and newcomers queue. It outlives idleness, as SetLimit does.
func (s *Semaphore) Pause(ctx context.Context) error {
	_, err := s.loop.Ask(ctx, "pause", engine.Request{Kind: engine.Pause, Limit: s.limit})
	return err
}

// Unpause ends what Pause began, and serves those who wait. It fails with
// ErrNotFound when there is no such semaphore.
func (s *Semaphore) Unpause(ctx context.Context) error {
	return s.operate(ctx, "unpause", engine.Unpause)
}

// Remove forgets the semaphore: the next user's limit counts. It fails with
// ErrInUse while somebody holds a permit or waits for one, or another client keeps
// one (see Options.Keep), and with ErrNotFound when there is no such semaphore.
// A removal that was made twice, because the answer to the first was lost, counts as
// done if the second found nothing.
func (s *Semaphore) Remove(ctx context.Context) error {
	if err := s.loop.GiveBack(ctx, "remove"); err != nil {
		return err
	}
	return s.operate(ctx, "remove", engine.Remove)
}

func (s *Semaphore) operate(ctx context.Context, op string, kind engine.Kind) error {
	status, err := s.loop.Ask(ctx, op, engine.Request{Kind: kind})
	switch {
	case err != nil:
		return err
	case status == engine.InUse:
		return fmt.Errorf("%w: %q", ErrInUse, s.name)
	case status == engine.Gone:
		return fmt.Errorf("%w: %q", ErrNotFound, s.name)
	}
	return nil
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

// State is a snapshot. It is of one moment, but for that of a semaphore in Redis
// with more than 500 permits and tickets, which is read in parts: see
// docs/not-promised.md.
func (s *Semaphore) State(ctx context.Context) (State, error) {
	s.loop.Lock()
	closed := s.loop.Closed()
	s.loop.Unlock()
	if closed {
		return State{}, ErrClosed
	}
	st, err := s.loop.Session().State(ctx)
	if err != nil {
		return st, s.loop.Named("state", err)
	}
	if st.Limit == 0 {
		st.Limit = s.limit
	}
	// Of its own callers this process knows more than it last told the engine.
	mine := s.loop.Session().Client() + "-"
	for i := len(st.Waiters) - 1; i >= 0; i-- {
		if strings.HasPrefix(st.Waiters[i].ID, mine) {
			s.loop.Lock()
			st.Waiters[i].Behind = s.loop.Machine.Behind()
			s.loop.Unlock()
			break
		}
	}
	return st, nil
}
