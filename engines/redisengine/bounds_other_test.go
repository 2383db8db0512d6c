//go:build !linux

package redisengine_test

import "time"

// threadTime is 0 on systems without such a clock.
func threadTime(int) time.Duration { return 0 }
