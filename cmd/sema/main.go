// Command sema limits how many commands run at once, on one host or across
// hosts through Redis. "sema --help" says how.
package main

import (
	"context"
	"os"

	"sema/cmd/sema/internal/cli"
)

func main() {
	cli.Exit(cli.Main(context.Background(), os.Args[1:], os.Environ(), os.Stdin, os.Stdout, os.Stderr))
}
