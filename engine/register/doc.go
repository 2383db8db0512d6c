// Package register makes an engine of a store that can swap one small value for
// another: a row of a database, a key of a key-value store. It is for authors of
// engines; package pgengine is one. The rules of semaphores, leases and the queue are
// in here, and the store knows nothing of them.
//
// # What a store does
//
// A store has one row for each semaphore: some bytes and a version. [Store] has four
// methods: Read reads a row and the store's clock; Swap writes a row if it still has
// the version that is named, and its clock is in a range; Names lists the rows that
// still matter; Sweep removes the others. See the example for a whole engine.
//
// Two further abilities make an engine faster where a store has them. An [Updater] locks
// a row, so that processes that contend wait for each other rather than try
// again. A [Listener] wakes another process; without it, and while its
// connection is away, the engine reads the rows on which it waits every now and then.
//
// # How an engine uses it
//
// Calls of one process on one semaphore that come while a step is under way are one
// step, up to 64 of them. A process that wrote the last version swaps without reading:
// one round trip. It then reckons with a time that the store's clock has certainly
// reached. A permit that is granted so lives a little longer than was asked for, as long as
// the clock is in doubt. What concerns other processes has the exact time, and is done
// under a lock, or after a read. A step that changes nothing writes nothing.
//
// Time never falls back: a step happens at the store's clock, or at the time of the
// step before if that is later. So a store whose clock is set back, or that fails
// over to one that is behind, gives leases that last longer, and tokens still grow.
//
// # What a store has to promise
//
// A row that was written is not forgotten before the engine is closed, or the limit may
// be exceeded for up to a lease. The store's clock is one for all processes, and shows
// microseconds since 1970. Its rate may differ from that of this process by 1/5000.
//
// Stores that keep these promises pass enginetest.Run.
package register
