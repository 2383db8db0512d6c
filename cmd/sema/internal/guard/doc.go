// Package guard runs a command so that it cannot outlive its permit unnoticed. Elsewhere
// than on Linux it does what it can: process_unix.go, process_windows.go.
//
//	sema ─┬─ sentinel       in sema's process group
//	      └─ guard ── command, in sema's process group
//
// The command runs in the process group of its caller, as it would without
// sema: terminal, ^C, ^Z, fg and bg need no help from anybody.
//
// The guard is the command's parent, and the kernel makes it the parent of the
// orphans below it (a "subreaper"). So it knows each process that the command
// started, in any group or session: when the guard has no child left, all have
// ended. It kills them all when sema dies, however that happens, or when the
// lease is about to end and sema has not said otherwise. It leaves the process
// group and the session, so that signals to the group do not stop or kill it.
// If something else stops it, the kernel continues it when sema dies. It keeps
// a file open that shows others the permit's holder alive, so the permit stays
// taken until the last process has ended.
//
// The sentinel blocks all signals and knows which ones the group was sent. A
// signal that reached sema but not the sentinel was sent to sema alone, so sema
// passes it on to the command. A signal to the whole group has already reached
// the command.
//
// Both are made by forks without exec, which takes a tenth of the time that a
// second start of the program would. A fork of a Go program has one thread and
// a runtime that does not work: see child.go for the rules.
package guard
