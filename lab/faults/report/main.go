// Command report makes a page of the results of the fault suite's rounds.
//
//	bin/lab-faults-report -out docs/data/faults.md faults.json …
//
// All figures of the page come from those files, the words from faults.md.tmpl.
package main

import (
	_ "embed"
	"flag"
	"fmt"
	"io"
	"os"

	"sema/lab/faults"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(args []string) (err error) {
	flags := flag.NewFlagSet("report", flag.ContinueOnError)
	out := flags.String("out", "", "write the page to this file; without it, to standard output")
	if err := flags.Parse(args); err != nil {
		return fmt.Errorf("report: %w", err)
	}
	var all []faults.Result
	for _, name := range flags.Args() {
		results, err := read(name)
		if err != nil {
			return fmt.Errorf("report: %s: %w", name, err)
		}
		all = append(all, results...)
	}
	if len(all) == 0 {
		return fmt.Errorf("report: no round was played; try: make faults")
	}
	var to io.Writer = os.Stdout
	if *out != "" {
		f, err := os.Create(*out)
		if err != nil {
			return fmt.Errorf("report: %w", err)
		}
		defer func() {
			if e := f.Close(); err == nil && e != nil {
				err = fmt.Errorf("report: %w", e)
			}
		}()
		to = f
	}
	if err := page.Execute(to, summarize(all)); err != nil {
		return fmt.Errorf("report: %w", err)
	}
	return nil
}

func read(name string) ([]faults.Result, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	return faults.ReadResults(f)
}
