// Command report makes a page of the results of the fault suite's rounds.
//
//	bin/lab-faults-report -out docs/data/faults.md faults.json …
//
// All figures of the page come from those files, the words from faults.md.tmpl.
package main

import (
	"bytes"
	"flag"
	"fmt"
	"os"

	"sema/lab/faults"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(args []string) error {
	flags := flag.NewFlagSet("report", flag.ContinueOnError)
	out := flags.String("out", "", "write the page to this file; without it, to standard output")
	if err := flags.Parse(args); err != nil {
		return fmt.Errorf("report: %w", err)
	}
	var all []faults.Result
	for _, name := range flags.Args() {
		results, err := faults.ReadResults(name)
		if err != nil {
			return fmt.Errorf("report: %w", err)
		}
		all = append(all, results...)
	}
	if len(all) == 0 {
		return fmt.Errorf("report: no round was played; try: make faults")
	}
	var text bytes.Buffer
	err := page.Execute(&text, summarize(all))
	switch {
	case err != nil:
	case *out == "":
		_, err = text.WriteTo(os.Stdout)
	default:
		err = os.WriteFile(*out, text.Bytes(), 0o644)
	}
	if err != nil {
		return fmt.Errorf("report: %w", err)
	}
	return nil
}
