package redisengine_test

import (
	"fmt"
	"os"
	"time"
)

// threadTime is how long the main thread of a process has run. What others run
// on the machine does not count. A thread that has just fallen asleep is waited
// for: only then its time is written down.
func threadTime(pid int) (ran time.Duration) {
	for {
		before := ran
		text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/schedstat", pid))
		_, _ = fmt.Sscanf(string(text), "%d", &ran)
		if ran == before {
			return ran
		}
		time.Sleep(50 * time.Microsecond)
	}
}
