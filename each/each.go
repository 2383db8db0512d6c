package sema

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"

	"sema/engine"
)

// keySeparator stands between prefix and key in a semaphore's name. No prefix
// has one, so that no two pairs of prefix and key make the same name.
const keySeparator = "/"

// ErrTooManyKeys: a further key would need a handle more than KeysOptions.Open,
// and all are in use. It is an ErrBusy.
var ErrTooManyKeys = fmt.Errorf("%w: too many keys in use at once", ErrBusy)

// KeysOptions of a Keys. The zero value of each field is its default.
type KeysOptions struct {
	// Options of each key's Semaphore. The Observer is told of all: prefix/key is the
	// Semaphore that it is told of a key's.
	Options Options

	// LimitOf is the limit of a key, 1 … MaxLimit, and 0 for the one given to NewKeys.
	// It is called when the key's Semaphore is opened: another limit counts when the
	// key was idle for Idle. It must not block. Default: all have that given to NewKeys.
	LimitOf func(key string) int

	// Open is how many keys' Semaphores may be open at once. One that is not in
	// use is closed for another; with all in use, a further key fails with
	// ErrTooManyKeys. At least 1. Default 1000.
	Open int

	// Idle is how long a Semaphore that is not in use stays open. At least a
	// millisecond. Default: a minute.
	Idle time.Duration
}

// Keys is one limit for each key: tenant, host, API key, each apart from all others. The
// semaphores are made on demand, and shared with every other client of the same engine and
// prefix. It is safe for concurrent use.
//
// Where the keys share a limit as well ("two per tenant, twenty in all"), a single
// Semaphore with Options.PerKey is for them; see Semaphore.For.
type Keys struct {
	engine  Engine
	prefix  string
	limit   int
	options KeysOptions
	handles handles
}

// NewKeys prepares semaphores called prefix/key, each limited to limit. The prefix has 1 … 253 bytes of
// UTF-8, without control characters and without a slash. It does no I/O, so it
// fails only on values out of range, with an *ArgumentError. A nil options means
// the defaults.
func NewKeys(e Engine, prefix string, limit int, options *KeysOptions) (*Keys, error) {
	k := &Keys{engine: e, prefix: prefix, limit: limit}
	if options != nil {
		k.options = *options
	}
	if k.options.Open == 0 {
		k.options.Open = 1000
	}
	if k.options.Idle == 0 {
		k.options.Idle = time.Minute
	}
	if err := k.validate(); err != nil {
		return nil, err
	}
	k.handles.most, k.handles.idleFor = k.options.Open, k.options.Idle
	k.handles.make = func(name string) (*Semaphore, error) {
		return New(e, name, k.limitOf(strings.TrimPrefix(name, prefix+keySeparator)), &k.options.Options)
	}
	return k, nil
}

func (k *Keys) limitOf(key string) int {
	if f := k.options.LimitOf; f != nil {
		return cmp.Or(f(key), k.limit)
	}
	return k.limit
}

func (k *Keys) validate() error {
	if err := engine.Validate("", k.engine); err != nil {
		return err
	}
	switch longest := MaxName - len(keySeparator) - 1; {
	case k.prefix == "":
		return &ArgumentError{What: "prefix", Value: k.prefix, Want: "a prefix that is not empty"}
	case strings.Contains(k.prefix, keySeparator):
		return &ArgumentError{What: "prefix", Value: k.prefix, Want: "no slash, which begins the key"}
	case k.options.Open < 1:
		return &ArgumentError{What: "number of open keys", Value: k.options.Open, Want: "at least 1"}
	case k.options.Idle < time.Millisecond:
		return &ArgumentError{What: "idle time", Value: k.options.Idle, Want: "at least 1ms"}
	default:
		if err := engine.ValidateText("prefix", k.prefix, longest); err != nil {
			return err
		}
		if err := engine.ValidateLimit(k.limit); err != nil {
			return err
		}
		return k.options.Options.withDefaults().validate()
	}
}

// Name is the name of a key's semaphore: the prefix, a slash, and the key as it
// is. Keys are compared byte by byte: lower-case what means the same, such as
// hosts. A key has at least one byte and no more than make a name of MaxName, of
// UTF-8 without control characters; otherwise it fails with an *ArgumentError.
// Operators see names: a key that is a secret is better hashed.
func (k *Keys) Name(key string) (string, error) {
	if key == "" {
		return "", &ArgumentError{What: "key", Value: key, Want: "a key that is not empty"}
	}
	if err := engine.ValidateText("key", key, MaxName-len(k.prefix)-len(keySeparator)); err != nil {
		return "", err
	}
	return k.prefix + keySeparator + key, nil
}

// Acquire is AcquireN with weight 1.
func (k *Keys) Acquire(ctx context.Context, key string) (*Permit, error) {
	return k.acquire(ctx, key, 1, true)
}

// AcquireN waits until weight n is free for the key, and takes it. It is
// Semaphore.AcquireN, and fails as that does, with nothing held; with ErrTooManyKeys at
// once if the key has no handle and there can be no more; and with an *ArgumentError on a
// key that Name refuses, or a limit of LimitOf that is out of range.
func (k *Keys) AcquireN(ctx context.Context, key string, n int) (*Permit, error) {
	return k.acquire(ctx, key, n, true)
}

// TryAcquire is TryAcquireN with weight 1.
func (k *Keys) TryAcquire(ctx context.Context, key string) (*Permit, error) {
	return k.acquire(ctx, key, 1, false)
}

// TryAcquireN takes weight n if it is free now for the key, and fails
// with ErrBusy otherwise.
func (k *Keys) TryAcquireN(ctx context.Context, key string, n int) (*Permit, error) {
	return k.acquire(ctx, key, n, false)
}

func (k *Keys) acquire(ctx context.Context, key string, n int, wait bool) (*Permit, error) {
	name, err := k.Name(key)
	if err != nil {
		return nil, err
	}
	h, err := k.handles.use(ctx, name)
	if err != nil {
		return nil, err
	}
	defer k.handles.done(h)
	return h.sem.acquire(ctx, "", n, wait)
}

// Do runs f while holding a permit of the key, as Semaphore.Do does.
func (k *Keys) Do(ctx context.Context, key string, f func(context.Context) error) error {
	p, err := k.Acquire(ctx, key)
	if err != nil {
		return err
	}
	return p.run(ctx, f)
}

// Use calls f with the key's Semaphore, to look at it or to drain it. It
// stays open until f returns. Use fails with f's error, and as AcquireN does on a
// key that cannot be used.
func (k *Keys) Use(key string, f func(*Semaphore) error) error {
	name, err := k.Name(key)
	if err != nil {
		return err
	}
	h, err := k.handles.use(context.Background(), name)
	if err != nil {
		return err
	}
	defer k.handles.done(h)
	return f(h.sem)
}

// Len is how many keys' Semaphores are open, in use or idle.
func (k *Keys) Len() int { return k.handles.len() }

// Close closes the Semaphores of all keys, as Semaphore.Close does, all at once: waits
// end with ErrClosed, and permits still held are given back. That takes three seconds at
// most, however many keys there are. Further calls fail with ErrClosed; closing again does
// nothing.
func (k *Keys) Close() error { return k.handles.close() }
