//go:build !linux && !darwin

package fileengine

import "time"

// uptime is the system time: this system has no monotonic clock that all processes share.
// If the system time jumps forward, leases end early.
func uptime() time.Duration { return time.Duration(time.Now().UnixNano()) }
