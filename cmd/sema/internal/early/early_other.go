//go:build !linux || !(amd64 || arm64)

package early

// Limit and Known: on this system the limit is not known.
var (
	Limit [2]uint64
	Known bool
)
