package fileengine

import (
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// uptime is the time since the host was booted, suspended time included. It
// feels no change of the system's clock.
func uptime() time.Duration {
	var t unix.Timespec
	if unix.ClockGettime(unix.CLOCK_BOOTTIME, &t) != nil {
		return time.Duration(time.Now().UnixNano())
	}
	return time.Duration(t.Nano())
}

// boot names the time since the host was booted.
func boot() string {
	id, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return "?"
	}
	return strings.TrimSpace(string(id))
}
