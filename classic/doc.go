// Package classic holds the lock and the counting semaphores of the book
// "Redis in Action" (chapters 6 and 11), and one that works without any
// client's clock. It uses the same keys, members and scores as the book's
// Python functions, so a Go service can join a fleet that already uses one of
// them.
//
// They are the originals, with the flaws of the originals. The comment of each
// type says what can go wrong with it, and a test shows it. For new work take
// package sema, which has none of these flaws. Within this package take
// [Scripted], or [Clockless] with [Options.Lua] where clocks cannot be trusted.
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
// that they hold a permit. Beyond that table, each type over-admits when Redis
// forgets writes in a failover or restart, or when its clock jumps forward.
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
// CROSSSLOT. A name is 1 to 512 bytes of UTF-8 without control characters; the
// book's Python takes any bytes, so it can have names that this package refuses.
//
// The limit, the lease and the unit of scores are stored nowhere (Clockless
// stores the lease). Every client of a semaphore must be given the same ones. A
// client with a shorter lease ends the permits of all others.
//
// # Contexts and unknown outcomes
//
// A context that has ended stops a call before its next request. One that ends
// while a request is on its way ends the call at its deadline if the go-redis
// client has ContextTimeoutEnabled; otherwise the client's own timeouts do.
//
// A request that failed may have reached Redis. Acquire then takes its entry
// out again, even though its context has ended, in one attempt of at most a
// quarter of a second. It does the same when it was refused. If that attempt
// fails too, the entry counts as a holder until its lease ends.
//
// When an answer gets lost, go-redis sends the request again, unless it is a
// transaction. No type here takes a second permit because of that, but a
// Release that was sent twice reports false although it did release.
package classic
