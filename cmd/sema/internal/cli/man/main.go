// Command man writes the manual pages of sema, made from its commands, their help and its
// topics, into the directory that is its argument.
package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"

	"sema/cmd/sema/internal/cli"
)

var header = doc.GenManHeader{Title: "SEMA", Section: "1", Source: "sema", Manual: "sema"}

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
	root := cli.Root()
	for _, c := range append(root.Commands(), root) {
		c.Long = verbatim(c.Long)
	}
	var topics []string
	for _, c := range root.Commands() {
		if c.IsAdditionalHelpTopicCommand() {
			topics = append(topics, "sema-"+c.Name()+"(1)")
		}
	}
	root.Long += "\n\nTopics: " + strings.Join(topics, ", ")
	if err := doc.GenManTree(root, &header, dir); err != nil {
		return err
	}
	for _, c := range root.Commands() { // GenManTree passes topics over
		if c.IsAdditionalHelpTopicCommand() {
			if err := writeTopic(c, dir); err != nil {
				return err
			}
		}
	}
	return nil
}

// writeTopic writes the page of a topic, which is no command: it has neither a synopsis
// nor options.
func writeTopic(c *cobra.Command, dir string) error {
	var page strings.Builder
	title := header // GenMan fills it in
	if err := doc.GenMan(c, &title, &page); err != nil {
		return err
	}
	text := page.String()
	for _, part := range [][2]string{{".SH SYNOPSIS", ".SH DESCRIPTION"}, {".SH OPTIONS\n", ".SH SEE ALSO"}} {
		from, to := strings.Index(text, part[0]), strings.Index(text, part[1])
		if from < 0 || to < from {
			return fmt.Errorf("the page of %s has no %q before %q", c.Name(), part[0], part[1])
		}
		text = text[:from] + text[to:]
	}
	return os.WriteFile(filepath.Join(dir, "sema-"+c.Name()+".1"), []byte(text), 0o644)
}

// verbatim makes blocks of indented lines of help, which a page shows line by line.
func verbatim(text string) string {
	var b strings.Builder
	block := false
	for line := range strings.Lines(text) {
		indented := strings.HasPrefix(line, "  ")
		if indented != block {
			b.WriteString("\n")
		}
		if block = indented; block {
			b.WriteString("    ")
		}
		b.WriteString(line)
	}
	return b.String()
}
