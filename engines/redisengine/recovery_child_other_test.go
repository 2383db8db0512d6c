//go:build unix && !linux

package redisengine_test

// playCrew does nothing: TestRecoveryUnderMany does not exist on this system.
func playCrew() bool { return false }
