// Command man writes the manual pages of sema, made from its commands and their
// help, into the directory that is its argument.
package main

import (
	"fmt"
	"os"

	"github.com/spf13/cobra/doc"

	"sema/cmd/sema/internal/cli"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: man DIRECTORY")
		os.Exit(64)
	}
	if err := write(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "man:", err)
		os.Exit(74)
	}
}

func write(dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	return doc.GenManTree(cli.Root(), &doc.GenManHeader{Title: "SEMA", Section: "1", Source: "sema", Manual: "sema"}, dir)
}
