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

// KeyRule is what one key may have, in place of what holds for all of them.
type KeyRule struct {
	// Cap is the most weight that the key may hold, 1 … MaxLimit; it may be above
	// Options.PerKey. Default: 0, that of all keys.
	Cap int

	// Share is how much of the semaphore the key gets while several wait, beside the
	// shares of the others, 1 … MaxShare. Default: 0, DefaultShare.
	Share int
}

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
