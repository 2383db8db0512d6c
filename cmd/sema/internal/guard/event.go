package guard

import "syscall"

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
