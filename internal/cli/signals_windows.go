package cli

import "os"

// heeded are the signals that leave the queue while sema waits. While the
// command runs, the console sends them to it as well.
func heeded() []os.Signal { return []os.Signal{os.Interrupt} }

// ends says whether a signal ends a wait.
func ends(os.Signal) bool { return true }
