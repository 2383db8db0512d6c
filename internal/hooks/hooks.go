// Package hooks tells other packages of sema what package sema tells no user. Package sema
// sets the functions when it is initialised. Arguments of type any are of its types, which
// this package cannot name.
package hooks

import (
	"context"
	"time"
)

// Package sema sets these, for packages each and adapt.

var (
	// Decide decides about the limit of a *sema.Semaphore with sema.Options.Adapt, until ctx ends.
	Decide func(ctx context.Context, semaphore any)

	// Unused reports whether nobody waits for a permit of a *sema.Semaphore, or has one,
	// and for how long.
	Unused func(semaphore any) (long time.Duration, unused bool)

	// Patience is how long an acquisition with these options, a []sema.AcquireOption, waits
	// for an engine that says nothing.
	Patience func(options any) time.Duration

	// Rest takes a time that an acquisition has waited already from the bounds in its options, a
	// []sema.AcquireOption, which it changes and returns.
	Rest func(options any, waited time.Duration) any

	// HeadStart is that of an acquisition with these options, a []sema.AcquireOption.
	HeadStart func(options any) time.Duration

	// Key is the key of an acquisition with these options, a []sema.AcquireOption; "" without one.
	Key func(options any) string
)
