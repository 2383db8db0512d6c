// Package register builds an engine on any store with an atomic compare-and-swap of
// small values: a row of a database, a key of a key-value store. It is for authors of
// engines; package pgengine uses it. The package has all rules of semaphores, leases
// and the queue; the store only keeps bytes.
//
// # What a store does
//
// A store has one row for each semaphore: some bytes and a version. [Store] has four
// methods. Read reads a row and the store's clock. Swap writes a row if it still has
// the given version and the clock is in a given range. Names lists the rows that
// still matter, and Sweep removes the others. See the example for a whole engine.
//
// Two optional abilities make an engine faster. An [Updater] locks a row, so that
// contending processes wait for each other instead of trying again. A [Listener]
// wakes another process. Without a Listener, and while it is disconnected, the engine
// polls the rows on which it waits.
//
// # How an engine uses a store
//
// The engine combines the calls that a process makes on one semaphore during a step:
// up to 64 of them form the next step. A process that wrote the last version swaps
// without reading, in one round trip. It then uses an estimate that the store's clock
// has certainly reached. A permit granted so lives longer than requested, by the
// doubt of the estimate. A step that concerns other processes needs the exact time: it
// locks the row or reads it first. A step that changes nothing writes nothing.
//
// Time never goes back: a step happens at the store's clock, or at the time of the
// previous step if that is later. If the clock is set back, or the store fails over to
// one that is behind, leases last longer and tokens still grow.
//
// # What a store must promise
//
// The store keeps a written row until the engine is closed; otherwise the limit may be
// exceeded for up to a lease. All processes see one clock of the store, in
// microseconds since 1970. Its rate may differ from a process's clock by 1/5000.
//
// Stores that keep these promises pass enginetest.Run.
package register
