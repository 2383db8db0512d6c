package fileengine

import (
	"time"

	"golang.org/x/sys/unix"
)

// uptime is the time since the boot of the host, without the time in suspend: see
// clock_linux.go.
func uptime() time.Duration {
	var t unix.Timespec
	if unix.ClockGettime(unix.CLOCK_UPTIME_RAW, &t) != nil {
		return time.Duration(time.Now().UnixNano())
	}
	return time.Duration(t.Nano())
}
