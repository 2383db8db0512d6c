// Package redisson offers the two semaphores of the Java library Redisson,
// RSemaphore and RPermitExpirableSemaphore, on Redisson's own data in Redis:
// Go and Java processes take, return and wait for the same permits. It speaks
// the layout of Redisson 3.22 and later, on one server, behind Sentinel, and on
// a cluster.
//
// A new semaphore among Go programs is better served by package sema, which has
// a queue, renewal, fencing tokens, and tells a holder what it lost. This
// package is for joining a fleet that uses Redisson already.
//
// # Data
//
// For a semaphore named name, where N is the name itself if it contains "{"
// and "{name}" otherwise:
//
//	name           STRING  permits available now, may be below 0
//	N:timeout      ZSET    held permits: 16 byte id, score is the end of the lease in epoch ms
//	redisson_sc:N  channel a number is published after every increment of the counter
//	N:receipts:H   HASH    what this package answered last on each lane of handle H; ten minutes
//
// Redisson knows all but the last. Access rules must allow all four, unless
// Options.NoReceipts does without the last.
//
// # Waiting
//
// As the original: try, subscribe, try again, then wait for messages and try at
// each. A process has one subscription per name. Messages get lost, when a
// connection breaks for one; so one waiter per name also tries once in
// Options.Poll, when the next lease ends, and whenever the subscription is made
// anew. There is no queue between processes, and no fairness: a Java thread that
// asks at the right moment is served before a Go waiter who came earlier.
//
// # Unknown outcomes
//
// A request whose answer is lost may have been executed. Sending it again, as
// go-redis and Redisson do, may take a second permit; not sending it again may
// leave one that nobody knows of. So each request that changes something has a
// number, and the script that executes it leaves a receipt of number and answer
// in the same step: a second copy gets the first one's answer. An acquisition
// whose caller gave up is undone under its number, and a copy that arrives even
// later does nothing. With that the package tries on until it has the answer or
// Options.Timeout has passed, and after that in the background for minutes, until
// it knows that nothing is left: acquisitions are undone, releases completed.
// Receipts cannot bring back what a failover of Redis itself forgot.
//
// # Differences from the original
//
// All of them keep Redisson's clients correct. Leases are measured by the server's
// clock. A release does not bring a deleted or expired counter back to life, a
// collection of ended leases does not either. Ended leases are collected at
// most 1000 at a time. A time to live survives DrainPermits and AddPermits. An
// increment publishes what is available, at least 1. Permits out of range of
// Java's int are refused. The documentation of the module has a table of all
// methods.
package redisson
