// Package fileengine keeps semaphores in a directory, for the processes of one
// host: of one user, or of a group. Nothing has to run.
//
//	NAME~HASH.log   what happened to one semaphore, record by record
//	PROCESS.life    a named pipe that each process has open while it lives
//	formN           touched by programs that know logs up to form N
//	swept           touched when somebody removed what the dead left
//
// # Steps
//
// All processes run the same state machine over the same log. A step locks the
// log, reads what others appended since the last one, appends a record of its
// own, and unlocks: it does not grow with the queue. The lock is waited for in
// the kernel. A log that has grown long is written anew, with the state in
// front. What a process wrote when it died in the middle of it has no valid
// checksum, and is cut off.
//
// # Waking, and who died
//
// Writing to a process's pipe wakes it: a hand-off writes the permit to the
// pipe of the next process, and then a word to the one after that. A process that
// has the writing end of a pipe open is told by the kernel when its last reader
// died, however it died. The head of the queue has the holders' pipes open, and
// every other waiter that of the one in front of it: should the head die, the
// next takes over. A waiter that died unnoticed is found when its turn comes.
// So a waiter does nothing while it waits, but for a look every two
// minutes.
//
// The permits of a dead process are free at once. A process that stands still
// keeps them until their leases end. One that is stopped (SIGSTOP) in the
// middle of a step, some ten microseconds long, keeps everybody from that
// semaphore; others' calls then fail when their time is up.
//
// # Time
//
// Leases go by the monotonic clock of the host, which no change of the system's
// time moves. It stands still in suspend, as do the holders. After a restart of
// the host nobody holds anything; limits and the last token stay.
//
// # Files that somebody damaged or removed
//
// The directory is looked after: files are touched while they are in use, and
// each run removes what the dead left and what nobody uses any more.
//
// A log that was damaged, cut or removed is written again by the first process
// that notices and has a permit or a ticket in it, from its memory; at the
// latest when a permit is renewed, after a third of its lease. A process that opens
// a damaged log asks the living ones to do so and waits for up to a
// second; where nobody lives that could know, it begins a new one. A log that
// was removed cannot be told from one that never was: until a holder notices,
// others may be granted what it holds. The holder then learns that its permit
// is gone. So the limit is exceeded for a third of a lease at most, and
// permits are lost rather than doubled.
//
// # Where
//
// The directory must be on a local file system that knows named pipes. Systems
// without them (Windows) look four times a second instead, and [Engine.Life]
// is not available there.
package fileengine
