//go:build !unix

package bench

import "time"

// processCPU is the CPU time this process has used. ok says whether it can be
// known.
func processCPU() (used time.Duration, ok bool) { return 0, false }
