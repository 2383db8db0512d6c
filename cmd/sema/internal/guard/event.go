package guard

import (
	"os"
	"syscall"
)

// Command is what to run. It gets this process's standard input, output and
// error, its working directory, and the files it inherited itself.
type Command struct {
	Path string   // of the program
	Args []string // with the program's name
	Env  []string

	Life   *os.File         // on Linux: kept open by the guard and the command; nil: none
	Ignore []syscall.Signal // on Linux: signals that it ignores, beside those that this process ignores
	Held   func() bool      // elsewhere: whether it may run on after ^Z
}

// Event is what happens to a command.
type Event struct {
	Kind Kind
	Code int   // Ended: the exit code, or -n if signal n ended the command
	Err  error // Failed: the reason
}

// Kind says what happened.
type Kind int

// What happens to a command. Ended or Failed comes once, unless Broken does.
const (
	Failed  Kind = iota + 1 // the command was not started
	Ended                   // its first process has ended
	Gone                    // no process of it is left
	Overdue                 // the guard kills it: the moment of Until has passed
	Broken                  // the guard has died, and the command's first process with it
)

// Code is what Event.Code tells of a wait status.
func Code(s syscall.WaitStatus) int {
	if s.Signaled() {
		return -int(s.Signal())
	}
	return s.ExitStatus()
}
