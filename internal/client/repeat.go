package client

import "time"

// Patience is how long a read is repeated: as long as a request whose caller has had no answer.
const Patience = patience

// Pause is the pause after so many failed reads in a row.
func Pause(failures int) time.Duration { return min(minPause<<min(failures-1, 10), maxPause) }
