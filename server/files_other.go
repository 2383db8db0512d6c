//go:build !unix

package server

// openFiles is how many files this process may have open; 0: nobody knows.
func openFiles() int { return 0 }
