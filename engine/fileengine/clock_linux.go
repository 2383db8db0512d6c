package fileengine

import (
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// The clock of leases is the same in all processes of the host and feels no
// change of the system's time. It stands still while the host is suspended, as
// do all holders and waiters, and as does the clock by which holders judge
// their permits. CLOCK_BOOTTIME goes on in suspend: after it, every lease would
// be over at once, and a waiter be granted what a holder goes on with.

// uptime is the time since the host was booted.
func uptime() time.Duration {
	var t unix.Timespec
	if unix.ClockGettime(unix.CLOCK_MONOTONIC, &t) != nil {
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
