//go:build !linux

package bench

import "time"

// clock counts nanoseconds; all processes of the host share it. Here it is the
// system's time, so a run must not see it changed.
func clock() int64 { return time.Now().UnixNano() }
