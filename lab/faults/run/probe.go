package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"sema"
	"sema/internal/fixture/history"
)

// probe looks, a lease after all workers have gone, whether anything of theirs is
// left: a newcomer gets all of each semaphore at once, and the engine has nothing
// that stays for ever.
func (r *round) probe(ctx context.Context) error {
	if err := wait(ctx, r.crew.lease+history.Slack); err != nil {
		return err
	}
	if err := r.ground.Settle(ctx); err != nil {
		return fmt.Errorf("faults: after the round: %w", err)
	}
	bug := plantedBug(r.planted)
	if bug != nil && bug.original != nil {
		return nil // its keys are others
	}
	if err := r.probeAll(ctx); err != nil {
		return err
	}
	left, err := r.ground.Left(ctx)
	if err != nil {
		return fmt.Errorf("faults: what is left: %w", err)
	}
	// A fault of this round may have met what an earlier one left.
	left = slices.DeleteFunc(left, func(name string) bool {
		return strings.Contains(name, "round-") && !strings.Contains(name, fmt.Sprintf("round-%d-", r.plan.seed))
	})
	if len(left) > 0 {
		r.leak("", "without a time to live: %s", strings.Join(left, ", "))
	}
	return nil
}

func (r *round) probeAll(ctx context.Context) (err error) {
	at, err := r.ground.Link(0).Open(r.crew.lease)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, at.Close()) }()
	for _, s := range r.plan.semaphores {
		if err := r.probeOne(ctx, at, s); err != nil {
			return fmt.Errorf("faults: probe of %s: %w", s.Name, err)
		}
	}
	return nil
}

// probeOne takes all of a semaphore at once.
func (r *round) probeOne(ctx context.Context, e sema.Engine, s history.Semaphore) error {
	sem, err := sema.New(e, s.Name, s.Limit, &sema.Options{Lease: 10 * time.Second})
	if err != nil {
		return err
	}
	defer func() { _ = sem.Close() }() // its permits end with their leases
	state, err := sem.State(ctx)
	if err != nil {
		return err
	}
	if state.Used > 0 || len(state.Waiters) > 0 {
		r.leak(s.Name, "a lease after the end there are holders %v and waiters %v", state.Holders, state.Waiters)
	}
	var held []*sema.Permit
	for range state.Limit {
		p, err := sem.TryAcquire(ctx)
		if err != nil {
			r.leak(s.Name, "a newcomer gets %d of %d: %v", len(held), state.Limit, err)
			break
		}
		held = append(held, p)
	}
	for _, p := range held {
		if err := p.Release(); err != nil {
			return err
		}
	}
	if state.Pinned { // SetLimit was part of the load; it stays for good, as promised
		operator, err := sema.Operate(e, s.Name)
		if err != nil {
			return err
		}
		return errors.Join(operator.Unset(ctx), operator.Close())
	}
	return nil
}
