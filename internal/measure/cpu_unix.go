//go:build unix

package measure

import "syscall"

// cpuTime is the CPU time that the process has used so far, in nanoseconds; 0
// where it cannot be known.
func cpuTime() int64 {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return u.Utime.Nano() + u.Stime.Nano()
}
