// Package hooks tells the packages around package sema what it tells no user. Package sema sets the
// functions when it is initialised. Their arguments are its own types, which
// this package cannot name.
package hooks

import (
	"context"
	"time"
)

var (
	// Decide decides about the limit of a *sema.Semaphore with sema.Options.Adapt, until ctx ends.
	Decide func(ctx context.Context, semaphore any)

	// Unused reports whether nobody waits for a permit of a *sema.Semaphore, or has one,
	// and for how long.
	Unused func(semaphore any) (long time.Duration, unused bool)

	// Patience is how long an acquisition with these options, a []sema.AcquireOption, waits
	// for an engine that says nothing.
	Patience func(options any) time.Duration

	// Key is the key of an acquisition with these options, a []sema.AcquireOption; "" without one.
	Key func(options any) string
)
