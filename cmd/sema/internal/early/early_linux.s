//go:build linux && (amd64 || arm64)

// This file has no code: it lets the compiler take a function without a body.
