// Package guard runs a command so that it cannot outlive its permit unnoticed.
// Linux only; elsewhere the package is empty.
//
//	sema ─┬─ sentinel       in sema's process group
//	      └─ guard ── command, in sema's process group
//
// The command runs in the process group of its caller, as it would without
// sema: terminal, ^C, ^Z, fg and bg need no help from anybody.
//
// The guard is the command's parent and the one to whom the kernel gives the
// orphans below it (a "subreaper"). So it knows every process that the command
// started, in whatever group or session, until it ends: when the guard has no
// child any more, nothing is left. It kills them all when sema dies, however
// that happens, or when the lease is about to end and sema has not said
// otherwise. It leaves the process group and the session, so what stops or
// kills the group does not reach it; if it was stopped all the same, the kernel
// continues it when sema dies. It keeps a file open by which others see the
// permit's holder alive: nobody is let in before the last process has ended.
//
// The sentinel blocks all signals and knows which ones the group was sent. A
// signal that reached sema but not the sentinel was meant for sema alone, and
// is passed on to the command; what the whole group got, the command has.
//
// Both are made by forks without exec, which takes a tenth of the time that a
// second start of the program would. A fork of a Go program has one thread and
// a runtime that does not work: see child.go for the rules.
package guard
