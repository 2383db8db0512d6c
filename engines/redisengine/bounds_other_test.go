//go:build !linux

package redisengine_test

import "time"

// threadTime is 0 where nothing tells it.
func threadTime(int) time.Duration { return 0 }
