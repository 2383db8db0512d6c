//go:build !linux

package metrics

// processFigures has none: only Linux shows them as files.
func processFigures() systemFigures { return systemFigures{} }
