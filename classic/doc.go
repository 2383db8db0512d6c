// Package classic holds the lock and the counting semaphores of the book
// "Redis in Action" (chapters 6 and 11), and one that works without any
// client's clock, on the same keys, members and scores as the book's Python
// functions: a Go service can join a fleet that already uses one of them.
//
// They are the originals, with the flaws of the originals. Each type says in
// plain words what can go wrong with it, and a test shows it. For new work take
// package sema, which has none of them; within this package take [Scripted],
// or [Clockless] with [Options.Lua] where clocks cannot be trusted.
//
//	type       from    decides by             over-admits when
//	Lock       6.2.5   SETNX or a script      a holder outlives its lease
//	Basic      6.3.1   rank by caller's time  clocks differ, or two callers overlap
//	Fair       6.3.2   rank by a counter      two callers overlap
//	Locked     6.3.4   Fair under Lock        skew > lease − time held
//	Scripted   11.2.3  count, in a script     skew > lease − time held
//	Clockless  —       rank by a counter      two callers overlap; with Lua as Lock
//
// "Over-admits" means: more callers than the limit believe at the same time
// that they hold a permit. Beyond that table, each does when Redis forgets
// writes in a failover or restart, or its clock jumps forward.
//
// All types only try: none of the semaphores waits for a permit, and none
// takes more than one at a time.
//
// # Keys
//
// The name is used as it is. Lock keeps lock:NAME; Basic and Scripted keep
// NAME; Fair keeps NAME, NAME:owner and NAME:counter; Locked those and
// lock:NAME; Clockless NAME:owner, NAME:counter and NAME:holder:ID. Different
// types must not share a name. On a cluster, every type but Basic, Scripted
// and Lock needs a name with a hash tag, such as "{api}", or Redis answers
// CROSSSLOT.
//
// The limit and the lease are stored nowhere (Clockless stores the lease):
// every client of a semaphore must be given the same ones. A client with a
// shorter lease throws out the permits of all others.
//
// # Contexts and unknown outcomes
//
// A context that has ended stops a call before its next request. One that ends
// while a request is on its way ends the call at its deadline if the go-redis
// client has ContextTimeoutEnabled; otherwise the client's own timeouts do.
//
// When a call fails after its request may have reached Redis, Acquire takes its
// entry out again, even though its context has ended: in one attempt of at most
// a quarter of a second, under the same condition. Should that fail too, the
// entry counts as a holder until its lease ends. go-redis sends a request that
// is no transaction again when the reply got lost; no type here turns that into
// a second permit, but a Release sent twice reports false although it did
// release.
package classic
