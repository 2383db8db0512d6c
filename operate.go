package sema

import (
	"cmp"
	"context"
	"fmt"

	"sema/engine"
	"sema/internal/protocol"
)

// Operator does to one semaphore what operators do: it looks, sets limits,
// pauses, and takes back permits by their ids. It needs no limit, and acquires
// nothing. It is safe for concurrent use.
//
// A call that cannot reach the engine is made again for three seconds, and then
// fails with ErrEngine. With ErrClosed it fails after Close, and when the
// engine is closed. No method creates a semaphore, but Set.
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

// State is a snapshot, as Semaphore.State is. It fails with ErrNotFound when
// there is no such semaphore.
func (o *Operator) State(ctx context.Context) (State, error) {
	st, err := o.s.State(ctx)
	if err == nil && st.Limit == 0 {
		err = o.absent()
	}
	return st, err
}

// Rule is what Operator.Set stores for a semaphore or for one of its keys. A field of 0 leaves
// its value as it is.
type Rule struct {
	// Limit of the semaphore: the most weight that is held at once. Of a key: its cap, the
	// most weight that the key may hold, with all below it, which may be above Caps. 1 … engine.MaxLimit;
	// a key with engine.MaxLimit has no cap but those above it.
	Limit int

	// Caps are the most weight that each key may hold that has no cap of its own, by how many names
	// it has, see Options.Caps. They are of the semaphore alone. 1 … engine.MaxLimit, and engine.MaxLimit is no
	// cap; 0 leaves one as it is.
	Caps engine.Caps

	// Observe only watches the limit from now on, in place of enforcing it, see Options.Observe. A rule with a Limit and without
	// Observe enforces it again; other fields leave that as it is. Each rule of the semaphore begins the counts anew.
	Observe bool

	// Pools are how much there is of some pools from now on, see Options.Pools; 0 ends one: "gpu=6,licence=0". Those that it
	// does not name stay. They are of the semaphore alone. Of a smaller pool nothing is taken back: its waiters
	// wait until enough came back.
	Pools engine.Pools

	// Share is how much of the semaphore a key gets while several wait, beside the shares of
	// the others beside it: 1 … 1000. A key has a share of 100 before. It is of a key alone.
	Share int
}

// Set stores a rule, for all clients and for good: it outlives idleness, until Unset. Without a
// path it is the rule of the semaphore, else that of the key, see For. At least one field
// is not 0.
//
// Set with a Limit creates the semaphore if there is none. Caps alone, and the rule of a key,
// fail with ErrNotFound then. Caps alone also pin the limit that is stored.
//
// A larger limit or cap serves waiters at once. A smaller one revokes nobody: grants resume when
// less than it is held. Waiters that weigh more than it fail with a *WeightError. Set fails with an
// *ArgumentError on values out of range, and on a field that is of the other kind of rule.
func (o *Operator) Set(ctx context.Context, rule Rule, path ...string) error {
	r, err := rule.request(path)
	if err != nil {
		return err
	}
	return o.do(ctx, "set", r)
}

// Unset ends what Set began. Without a path: the limit stays, watched or not, while the semaphore is in use, is
// forgotten when it has been idle, and gives way to a program's. With a path: the key's rule
// ends, and the cap and the share of all keys hold for it. Without a rule nothing changes. Unset fails with ErrNotFound when there is no
// such semaphore.
func (o *Operator) Unset(ctx context.Context, path ...string) error {
	key, err := engine.NewKey(path...)
	if err != nil {
		return err
	}
	if len(path) == 0 {
		return o.do(ctx, "unset", protocol.Request{Kind: protocol.UnsetLimit})
	}
	return o.do(ctx, "unset", protocol.Request{Kind: protocol.UnsetKey, Target: protocol.Target{Key: key}})
}

// request is what stores the rule. Its errors are *ArgumentErrors.
func (r Rule) request(path []string) (protocol.Request, error) {
	key, err := engine.NewKey(path...)
	if err != nil {
		return protocol.Request{}, err
	}
	var poolsErr error
	r.Pools, poolsErr = engine.ParsePools(string(r.Pools), 0) // in their order from here on
	limit := "limit"
	if len(path) > 0 {
		limit = "limit of a key"
	}
	if err := cmp.Or(
		engine.ValidateRange("", limit, r.Limit, 0, engine.MaxLimit), r.Caps.Validate(), poolsErr,
		engine.ValidateRange("", "share", r.Share, 0, engine.MaxShare)); err != nil {
		return protocol.Request{}, err
	}
	switch {
	case r == Rule{}:
		return protocol.Request{}, &ArgumentError{What: "rule", Value: r, Want: "a Limit, Observe, Caps, Pools or a Share that is not 0"}
	case len(path) == 0 && r.Share != 0:
		return protocol.Request{}, &ArgumentError{What: "share", Value: r.Share, Want: "0 without a key"}
	case len(path) > 0 && r.Caps != engine.Caps{}:
		return protocol.Request{}, &ArgumentError{What: "caps", Value: r.Caps, Want: "none with a key, whose cap is Limit"}
	case len(path) > 0 && r.Observe:
		return protocol.Request{}, &ArgumentError{What: "observe", Value: r.Observe, Want: "false with a key: all of a semaphore is watched, or nothing"}
	case len(path) > 0 && r.Pools != "":
		return protocol.Request{}, &ArgumentError{What: "pools", Value: string(r.Pools), Want: "none with a key"}
	case len(path) > 0:
		return protocol.Request{Kind: protocol.SetKey, Target: protocol.Target{Key: key}, Cap: r.Limit, Share: r.Share}, nil
	}
	for i, c := range r.Caps {
		if c == engine.MaxLimit {
			r.Caps[i] = -1
		}
	}
	return protocol.Request{Kind: protocol.SetLimit, Limit: r.Limit, Caps: r.Caps, Pools: r.Pools, Observe: r.Observe, Pin: true}, nil
}

// Pause stops all grants, until Unpause: a holder keeps its permit, a waiter goes
// on waiting, and newcomers queue. It outlives idleness, as a limit by Set does. It fails
// with ErrNotFound when there is no such semaphore: one that nobody has used
// yet gets its limit from Set first.
func (o *Operator) Pause(ctx context.Context) error {
	return o.do(ctx, "pause", protocol.Request{Kind: protocol.Pause})
}

// Unpause ends what Pause began, and a cooldown (see Permit.RetryAfter), and serves the waiters. It fails with ErrNotFound
// when there is no such semaphore.
func (o *Operator) Unpause(ctx context.Context) error {
	return o.do(ctx, "unpause", protocol.Request{Kind: protocol.Unpause})
}

// Remove forgets the semaphore: the next user's limit counts. It fails with
// ErrInUse while somebody holds a permit, waits for one, or keeps one (see
// Options.Keep), and with ErrNotFound when there is no such semaphore. A removal
// that was made twice, because the answer to the first was lost, counts as
// done if the second found nothing.
func (o *Operator) Remove(ctx context.Context) error {
	return o.do(ctx, "remove", protocol.Request{Kind: protocol.Remove})
}

// Revoke has the holder of a permit told, by a message at once or at worst at its next renewal, that it lost
// the permit. The weight is free when the holder has released it, or when its
// lease has ended. The id of a ticket has its waiter leave the queue: Acquire fails with ErrRevoked. It fails with ErrLost
// when there is no such permit, and with an *ArgumentError when the id is none. Made twice, it counts as done, as Remove does.
func (o *Operator) Revoke(ctx context.Context, id string) error {
	return o.doTo(ctx, "revoke", protocol.Request{Kind: protocol.Revoke}, id)
}

// RevokeTicket is Revoke for a waiter alone: if it has its permit by now, it keeps the permit, and RevokeTicket fails with ErrLost.
func (o *Operator) RevokeTicket(ctx context.Context, id string) error {
	return o.doTo(ctx, "revoke", protocol.Request{Kind: protocol.Revoke, Wait: true}, id)
}

// Release gives back a permit by its id, whoever holds it, at once. Its
// holder learns of that when it renews, which it is told to do now: Revoke is the
// gentle way. An id may meanwhile be that of the next caller of its process. It
// fails as Revoke does.
func (o *Operator) Release(ctx context.Context, id string) error {
	return o.doTo(ctx, "release", protocol.Request{Kind: protocol.Release}, id)
}

func (o *Operator) doTo(ctx context.Context, op string, r protocol.Request, id string) (err error) {
	if r.ID, err = engine.ParseID(id); err != nil {
		return err
	}
	return o.do(ctx, op, r)
}

func (o *Operator) do(ctx context.Context, op string, r protocol.Request) error {
	o.s.made()
	status, err := o.s.loop.Ask(ctx, op, r)
	switch {
	case err != nil:
		return err
	case (status == protocol.Gone || status == protocol.InUse) && r.ID.Client != "":
		return noPermit(o.s.name, r.ID)
	case status == protocol.InUse:
		return named(ErrInUse, o.s.name)
	case status == protocol.TooMany:
		return &ArgumentError{What: "pools", Value: string(r.Pools), Want: fmt.Sprintf("at most %d pools with those there are", engine.MaxPools)}
	case status == protocol.Gone:
		return o.absent()
	}
	return nil
}

func (o *Operator) absent() error { return named(ErrNotFound, o.s.name) }

// Close waits for a call that is under way, for three seconds at most. The engine
// stays open. Closing again does nothing.
func (o *Operator) Close() error { return o.s.Close() }
