package cli

import "os"

// foreground: there are no jobs in the background.
func foreground(*os.File) bool { return true }
