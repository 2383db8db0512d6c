// Package early records what package syscall changes when it is initialised:
// Go raises the soft limit of open files for itself, and a command must not
// inherit that. os/exec puts the limit back; a program that forks by hand has to
// know it.
//
// The package imports nothing but unsafe and runtime, and its path sorts before
// "syscall", so the language initialises it first: "repeatedly selecting the
// first package in the list" of those sorted by import path.
package early
