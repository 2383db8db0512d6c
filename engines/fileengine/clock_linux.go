package fileengine

import (
	"time"

	"golang.org/x/sys/unix"
)

// uptime is the time since the boot of the host, without the time in suspend. In suspend all
// holders and waiters stand still, and so does the clock by which holders judge their permits.
// CLOCK_BOOTTIME advances: after a suspend every lease would have ended, and waiters would be
// granted permits that their holders still use.
func uptime() time.Duration {
	var t unix.Timespec
	if unix.ClockGettime(unix.CLOCK_MONOTONIC, &t) != nil {
		return time.Duration(time.Now().UnixNano())
	}
	return time.Duration(t.Nano())
}
