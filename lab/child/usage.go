package child

import "time"

// Usage is what a process has used.
type Usage struct {
	CPU      time.Duration // of all its threads
	Resident int           // bytes; 0 when it has ended
	Peak     int           // bytes, the most at once
}
