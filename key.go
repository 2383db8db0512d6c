package sema

import (
	"context"
	"fmt"

	"sema/engine"
)

// The ranges of what a key may have.
const (
	MaxKey       = engine.MaxName      // bytes in a key
	DefaultShare = engine.DefaultShare // of a key without a rule
	MaxShare     = engine.MaxShare     // of a key
)

// Key is one of those that share a Semaphore: a tenant, a host, a user, a model. It is
// a value that [Semaphore.For] makes: there is nothing to close, and any number of them
// costs nothing. Its permits count against the limit of the Semaphore, and against the
// cap of the key: Options.PerKey, or its own KeyRule.
//
// Within a key callers are served in the order in which they came. Among keys the next
// free weight goes to the key that holds the fewest whole shares; among such keys, in
// turn. So a key with a thousand callers delays the others no more than one with two, and
// what nobody else wants is any key's, up to its cap. A key at its cap holds up nobody.
type Key struct {
	s    *Semaphore
	name string
}

// KeyRule is what one key may have, in place of what holds for all of them.
type KeyRule struct {
	// Cap is the most weight that the key may hold, 1 … MaxLimit; it may be above
	// Options.PerKey. Default: 0, that of all keys.
	Cap int

	// Share is how much of the semaphore the key gets while several wait, beside the
	// shares of the others, 1 … MaxShare. Default: 0, DefaultShare.
	Share int
}

// For is the key of that name. Names are compared byte by byte: lower-case what means the
// same, such as hosts. A name has 1 … MaxKey bytes of UTF-8 without control characters; with
// another one, each method fails with an *ArgumentError. Operators see names: hash what is
// a secret, such as an API key. Names come from authentication and not from the caller's
// own words: a caller that makes up many keys gets as many shares.
func (s *Semaphore) For(name string) Key { return Key{s, name} }

// Name is the name given to For.
func (k Key) Name() string { return k.name }

// Acquire is AcquireN with weight 1.
func (k Key) Acquire(ctx context.Context) (*Permit, error) { return k.AcquireN(ctx, 1) }

// AcquireN waits until weight n is free, in all and for the key, and it is the turn of the
// key and of this caller. It fails as Semaphore.AcquireN does; with a *WeightError if n
// is above the limit, or above the cap of the key.
func (k Key) AcquireN(ctx context.Context, n int) (*Permit, error) { return k.acquire(ctx, n, true) }

// TryAcquire is TryAcquireN with weight 1.
func (k Key) TryAcquire(ctx context.Context) (*Permit, error) { return k.TryAcquireN(ctx, 1) }

// TryAcquireN takes weight n if it is free now, in all and for the key, and nobody waits
// for it, and fails with ErrBusy otherwise. Callers that wait for their keys'
// caps alone are passed.
func (k Key) TryAcquireN(ctx context.Context, n int) (*Permit, error) {
	return k.acquire(ctx, n, false)
}

func (k Key) acquire(ctx context.Context, n int, wait bool) (*Permit, error) {
	if err := validateKey(k.name); err != nil {
		return nil, err
	}
	return k.s.acquire(ctx, k.name, n, wait)
}

// Do runs f while holding a permit of the key, as Semaphore.Do does.
func (k Key) Do(ctx context.Context, f func(context.Context) error) error {
	p, err := k.Acquire(ctx)
	if err != nil {
		return err
	}
	return p.run(ctx, f)
}

// Set gives the key a rule of its own, for all clients and for good: it outlives
// idleness, until Unset. A semaphore that nobody has used yet is created, with the limit
// given to New. A larger cap or share serves waiters at once; a smaller cap takes no
// permit away. It fails with an *ArgumentError on a name or a value out of range, and with
// ErrEngine if the engine does not answer for three seconds.
func (k Key) Set(ctx context.Context, rule KeyRule) error {
	return k.s.setKey(ctx, k.name, rule)
}

// Unset ends the rule that the key has. Without a rule nothing changes. It fails as Set
// does, and with ErrNotFound when there is no such semaphore.
func (k Key) Unset(ctx context.Context) error { return k.s.unsetKey(ctx, k.name) }

// SetKey gives a key a rule of its own, as Key.Set does. It fails with ErrNotFound
// when there is no such semaphore.
func (o *Operator) SetKey(ctx context.Context, key string, rule KeyRule) error {
	return o.s.setKey(ctx, key, rule)
}

// UnsetKey ends the rule that a key has. Without a rule nothing changes. It fails with
// ErrNotFound when there is no such semaphore.
func (o *Operator) UnsetKey(ctx context.Context, key string) error { return o.s.unsetKey(ctx, key) }

func (s *Semaphore) setKey(ctx context.Context, key string, rule KeyRule) error {
	switch {
	case rule.Cap < 0 || rule.Cap > MaxLimit:
		return &ArgumentError{What: "cap", Value: rule.Cap, Want: fmt.Sprintf("0 for that of all keys, or 1 … %d", MaxLimit)}
	case rule.Share < 0 || rule.Share > MaxShare:
		return &ArgumentError{What: "share", Value: rule.Share, Want: fmt.Sprintf("0 for %d, or 1 … %d", DefaultShare, MaxShare)}
	}
	return s.rule(ctx, "set key", engine.Request{
		Kind: engine.SetKey, Key: key, Cap: rule.Cap, Share: rule.Share, Limit: s.limit, PerKey: s.options.PerKey,
	})
}

func (s *Semaphore) unsetKey(ctx context.Context, key string) error {
	return s.rule(ctx, "unset key", engine.Request{Kind: engine.UnsetKey, Key: key})
}

func (s *Semaphore) rule(ctx context.Context, op string, r engine.Request) error {
	if err := validateKey(r.Key); err != nil {
		return err
	}
	status, err := s.loop.Ask(ctx, op, r)
	if err == nil && status == engine.Gone {
		err = named(ErrNotFound, s.name)
	}
	return err
}

func validateKey(name string) error {
	if name == "" {
		return &ArgumentError{What: "key", Value: name, Want: "a key that is not empty"}
	}
	return engine.ValidateText("key", name, MaxKey)
}
