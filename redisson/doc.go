// Package redisson offers the two semaphores of the Java library Redisson,
// RSemaphore and RPermitExpirableSemaphore, on Redisson's own data in Redis:
// Go and Java processes take, return and wait for the same permits. It uses the
// layout of Redisson 3.22 and later, on one server, behind Sentinel, and on a
// cluster.
//
// A new semaphore among Go programs is better served by package sema, which has
// a queue, renewal and fencing tokens, and tells a holder when it lost its
// permit. This package is for joining a fleet that uses Redisson already.
//
// # Data
//
// For a semaphore named name, where N is the name itself if it contains "{"
// and "{name}" otherwise:
//
//	name           STRING  permits available now, may be below 0
//	N:timeout      ZSET    held permits: 16 byte id, score is the end of the lease in epoch ms
//	redisson_sc:N  channel a number is published after every increment of the counter
//	N:receipts:H   HASH    what the server answered last on each lane of handle H; ten minutes
//
// Redisson knows all but the last. Access rules must allow all four, or the
// first three with Options.NoReceipts.
//
// # Waiting
//
// A waiter does what it does in the original: it tries, subscribes, tries again,
// then waits for messages and tries at each. A process has one subscription per
// name. A message can get lost, for example when a connection breaks. So one
// waiter per name also tries once in Options.Poll, when the next lease ends, and
// when a subscription was made anew. There is no queue between processes, and no
// fairness: a Java thread that asks at the right moment is served before a Go
// waiter that came earlier.
//
// # Unknown outcomes
//
// A request whose answer is lost may have been executed. To send it again, as
// go-redis and Redisson do, can take a second permit. Not to send it again can
// leave a permit taken that nobody knows of. Therefore each request that changes
// something has a number, and the script that executes it also stores a receipt:
// the number and the answer. A second copy of the request gets the answer of the
// first. An acquisition whose caller gave up is undone under its number; a copy
// that arrives even later does nothing.
//
// The package sends a request until it has the answer or Options.Timeout has
// passed. If the outcome is unknown then, it goes on in the background for up to
// five minutes: it undoes acquisitions and completes releases. Receipts cannot
// bring back what a failover of Redis itself has forgotten.
//
// # Differences from the original
//
// None of them makes Redisson's clients wrong. Leases are measured by the
// server's clock. A release does not make a new counter when the old one was
// deleted or has expired; nor does the collection of ended leases. Ended leases
// are collected at most 1000 at a time. DrainPermits and AddPermits keep the time
// to live. An increment publishes what is available, at least 1. Permits out of
// range of Java's int are refused. docs/data/redisson.md has a table of all methods,
// and all differences in data.
package redisson
