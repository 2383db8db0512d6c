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
// Tenants, hosts or users share a Semaphore by keys: [Semaphore.For] has an order among them,
// so that none waits for another one's queue, and Options.PerKey a cap for each.
//
// Operators set limits, pause, and take permits back with [Operate].
//
// # Errors
//
// An error of a call matches exactly one of these, so any order of tests is right:
//
//   - [ErrBusy], found with errors.Is: nothing was free, or nothing before the context
//     ended. Say "busy", try later; a [*BusyError] says when;
//   - [ErrEngine]: the engine is away. Fail, or go on without a limit. An *engine.Error in
//     it, found with errors.As, has the details;
//   - [ErrClosed]: the program is shutting down;
//   - a [*WeightError], found with errors.As: more was asked for than the limit, and would
//     never be granted;
//   - an [*ArgumentError], a [*LimitError] or a [*NestedError]: a mistake in the program or its
//     deployment.
//
// After the end of the caller's own context the error is also that context's error, beside
// ErrBusy if the caller was queued, and beside ErrEngine if the engine had not answered.
//
// A permit that was lost ends its contexts with [ErrLost] as their cause; [ErrRevoked] and
// [ErrHeldTooLong] are an ErrLost that says why. Each error names its semaphore, or the
// value that was refused: so compare with errors.Is, not with ==. See the example Errors.
//
// # Changing a limit
//
// Change the number in the code and deploy it: the limit of the process that was started
// last holds for all, the others go by it and log it once. One that an operator set, with
// [Operator.SetLimit] or at a terminal, holds against all programs until
// [Operator.UnsetLimit]. A larger limit serves those who wait at once. A smaller one takes
// no permit away: grants go on when less than that is held. [Options.OnConflict] has
// other policies. See the example ChangingALimit.
//
// # Choosing a lease
//
// The lease bounds how long a dead holder's permit is missing, where the engine cannot see
// who died: on Redis, and behind a server. It bounds as well how long the engine may be away
// before holders lose what they hold. The default of 30 s suits most. Shorter: the permit of
// a process that was killed comes back sooner, more calls travel (three in a lease for a
// holder, six for a client that waits), and a shorter outage ends the work. Longer: the
// reverse. Work may take far longer than the lease, for it is renewed; [Options.MaxHold] bounds
// the work. [Options.Margin] is the time to stop in after a loss: choose a lease of at
// least four times what the work needs for that. See the example ChoosingALease.
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
//
// So work runs under the permit's context and stops when that ends. Where a late write
// would do harm, the storage compares tokens as well: see [Permit.Token], and the
// example Trust.
package sema
