package fileengine

import (
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// The clock of leases is the same in all processes of the host, and changes of the system
// time do not affect it. It stops while the host is suspended. So do all holders and
// waiters, and the clock by which holders judge their permits. CLOCK_BOOTTIME advances in
// suspend: after it every lease would have ended, and waiters would be granted permits that
// their holders still use.

// uptime is the time since the boot of the host, without the time in suspend.
func uptime() time.Duration {
	var t unix.Timespec
	if unix.ClockGettime(unix.CLOCK_MONOTONIC, &t) != nil {
		return time.Duration(time.Now().UnixNano())
	}
	return time.Duration(t.Nano())
}

// boot identifies the current boot of the host.
func boot() string {
	id, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return "?"
	}
	return strings.TrimSpace(string(id))
}
