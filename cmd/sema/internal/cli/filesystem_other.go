//go:build !linux && !darwin && !freebsd

package cli

// fileSystem is unknown here.
func fileSystem(string) string { return "" }
