//go:build !linux

package history

import "time"

var began = time.Now()

// Now is the time since this process began. Only on Linux can histories of
// several processes be compared.
func Now() int64 { return int64(time.Since(began)) }
