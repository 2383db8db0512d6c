package redisengine_test

import (
	"fmt"
	"os"
	"time"
)

// threadTime is the processor time of the main thread of a process. Other
// programs on the machine do not count. It waits until the thread sleeps,
// because only then the kernel has updated the time.
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
