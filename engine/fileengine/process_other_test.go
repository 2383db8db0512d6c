//go:build !linux

package fileengine

// PlayRole is for tests that look at processes, which only Linux shows.
func PlayRole() bool { return false }
