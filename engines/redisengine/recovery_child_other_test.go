//go:build unix && !linux

package redisengine_test

// playCrew has nothing to do where TestRecoveryUnderMany is not.
func playCrew() bool { return false }
