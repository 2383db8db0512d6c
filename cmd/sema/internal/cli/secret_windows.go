package cli

import "os"

// ownOnly refuses nothing: the mode says nothing here of who can read a file.
func ownOnly(string, string, os.FileInfo) error { return nil }
