// Package sema limits how many things run at once, across processes and hosts.
//
//	sem, err := sema.New(engine, "github-api", 5, nil)
//	err = sem.Do(ctx, func(ctx context.Context) error { return call(ctx) })
//
// At most five calls run at once, in all processes that use the name on the same engine. Do waits
// for a permit, first come, first served, runs the function and gives the permit back. The
// function's context ends when ctx does, or when the permit is lost. An [Engine] stores
// semaphores: in Redis (engines/redisengine), PostgreSQL (engines/pgengine), a directory on one host
// (engines/fileengine), memory (engines/memengine), or behind "sema serve" (engines/httpengine).
//
// # Options of one call
//
// Weight(3) takes three of the five. For("acme") queues by tenant, so that no tenant waits for
// another's queue. WaitAtMost(time.Second) bounds the wait. Label("job 7") names the permit for
// operators. [Semaphore.Acquire] and [Semaphore.TryAcquire] take the same options and return a
// [Permit], for work that does not fit into one function: defer its Release, and work under its
// Context.
//
// # Losing a permit
//
// A permit has a lease, 30 seconds by default, renewed in the background. If its holder dies, the
// permit is free when the lease ends. If the engine cannot be reached for that long, the permit is
// lost: its context ends, with cause [ErrLost], before anybody else can get the permit. A process
// that ignores its context may then work beside the next holder; see [Permit.Token] for storage
// that refuses it.
//
// Holders judge leases by their own monotonic clock and compare no clocks. On Linux that clock
// stands still while the machine is suspended: a laptop that wakes up can believe in a permit
// until its first renewal.
//
// # Errors
//
// Every error of a call is exactly one of these: [ErrBusy] (nothing free in time: try later),
// [ErrEngine] (the engine is away: fail, or go on without a limit), [ErrClosed] (the program is
// shutting down), [*WeightError] (more than the limit), or [*ArgumentError], [*LimitError],
// [*NestedError] and [ErrNoPool] (a mistake). Compare with errors.Is and errors.As: errors name their semaphore.
//
// # Limits
//
// The limit in the code of the process that started last holds for all. Operators change it with
// [Operate] or "sema limit", and their limit holds against all programs until it is unset.
// [Options.OnConflict] has other policies.
//
// At the end of a program call [Semaphore.Close], or [Semaphore.Shutdown] to let holders finish.
package sema
