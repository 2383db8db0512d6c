// Package sema is a distributed counting semaphore: at most N at once, across
// every process and host.
//
//	engine, err := redisengine.New(rdb, nil)
//	sem, err := sema.New(engine, "github-api", 5, nil)
//
//	permit, err := sem.Acquire(ctx)  // first come, first served; ctx bounds the wait
//	defer permit.Release()           // works even though ctx was cancelled
//	call(permit.Context(ctx))        // ends with ctx, and before anybody else can hold the permit
//
// A [Semaphore] is a name with a limit, kept by an [Engine]: memory (package
// engine/memengine), a directory on one host (engine/fileengine) or Redis
// (engine/redisengine). A caller acquires a [Permit], works and releases it.
// Every permit has a lease. While its holder lives, the lease is renewed in
// the background; when the holder dies, the permit comes back once the lease
// has ended. A holder that may have lost its permit is told first: the permit's
// contexts end, with cause [ErrLost], before anybody else can hold the permit.
//
// Operators set limits, pause, and take permits back with [Operate].
//
// # Changing a limit
//
// The limit of the process that was started last holds for all; the others go by it
// and log it once. One that an operator set holds against all programs, until the
// operator takes it back. See [Policy].
//
// # Trust
//
// Engines judge leases by their own clock. A holder judges its own trust by
// the local monotonic clock alone and never compares clocks: a renewal sent at
// time t is executed at t or later, so the lease it gives cannot end before
// t + lease. The permit's context ends one margin before that moment.
//
// A waiter holds a ticket, which it keeps alive by asking again under the same
// name. A permit that is handed over to a waiter lives, at first, no longer
// than the ticket did; so the moment the waiter last asked bounds it as well,
// and no message needs to be trusted for its timing.
//
// On Linux the monotonic clock stands still while the whole machine is
// suspended. A laptop that wakes up can believe in a permit until its first
// renewal says otherwise.
package sema
