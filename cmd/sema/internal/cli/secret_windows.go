package cli

// ownOnly refuses nothing: the mode says nothing here of who can read a file.
func ownOnly(string, string) error { return nil }
