// Package fileengine keeps semaphores in a directory, for processes of one host that
// belong to one user or one group. It needs no server.
//
//	NAME~HASH.log   the steps of one semaphore, record by record
//	PROCESS.life    a named pipe that a process has open while it lives
//
// # Steps
//
// All processes run the same state machine over the same log. A step locks the log,
// reads the records that others have appended since its last step, appends its own
// record, and unlocks. Its cost does not grow with the queue. Processes wait for the
// lock in the kernel. A long log is replaced by a short one that begins with the state.
// If a process dies while it writes, its record has no valid checksum, and the next
// process truncates it.
//
// # Waking processes, and noticing their death
//
// A write to a process's pipe wakes it. A hand-off writes the permit to the pipe of the
// next process, and then a short message to the process after that.
//
// A process that has the writing end of a pipe open learns from the kernel when the
// last reader has died. The head of the queue watches the pipes of the holders, and
// every other waiter watches the waiter before it. If the head dies, the next waiter
// becomes the head. The death of a waiter that nobody noticed is found when it becomes
// the head. So a waiter does nothing while it waits, except for one check every two
// minutes.
//
// The permits of a dead process are free at once. A process that stalls keeps its
// permits until their leases end. A process that is stopped (SIGSTOP) during a step,
// which takes some ten microseconds, blocks its semaphore: the calls of other processes
// then fail at their time limit.
//
// # Time
//
// Leases use the monotonic clock of the host and its system time: as much time has passed
// as both of them show. So a lease does not end early if the system time is changed, after a
// suspend, or in a container with an uptime of its own. A restart of the host ends the
// permits of all processes; limits, the last token and detached permits stay.
//
// # Damaged and removed files
//
// Processes touch the files that they use, so that cleaners of temporary directories
// keep them. A log that has to last for longer, such as one with an operator's limit, has
// the sticky bit, for which systemd-tmpfiles keeps it. Processes also remove the files of dead processes and
// unused semaphores: each process looks at some more files than it has created.
//
// If a log was damaged, cut or removed, a process that has a permit or a ticket in it
// writes it again from memory, as soon as it notices. A renewal notices at the latest,
// after a third of a lease. A process that opens a damaged log asks the living
// processes to restore it. If none does so within a second, it begins a new log.
//
// A removed log looks like one that never existed. Until a holder notices, others may
// be granted its permit; then the holder learns that its permit is lost. So the limit
// is exceeded for at most a third of a lease, and permits are lost rather than doubled.
//
// # The files of this package, in the order of a step
//
//	session.go  a client's access to one semaphore; step.go a locked step, and who watches whose pipe
//	log.go      the file of a semaphore: read, appended to, replaced by a short one; record.go what is in it; image.go its state
//	message.go  what is written into another process's pipe
//	alive_*.go  how the kernel tells of a process's death; process.go the own pipe, and who the processes are
//	sweep.go    removes what dead processes left; time.go two clocks; dir_*.go and lock_*.go what systems do in different ways
//
// # Requirements
//
// The directory must be on a local file system that supports named pipes. On systems
// without them (Windows) the engine polls four times a second, and [Engine.Life] is not
// available.
package fileengine
