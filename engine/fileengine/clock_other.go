//go:build !linux && !darwin

package fileengine

import "time"

// uptime is the system's clock: there is none here that goes on in suspend and
// is the same in all processes. A clock that jumps forward ends leases early.
func uptime() time.Duration { return time.Duration(time.Now().UnixNano()) }

// boot is unknown here. The clock does not start anew with the host.
func boot() string { return "?" }
