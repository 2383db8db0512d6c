// Command run tries the limit that adapts on each kind of server, from so many seeds,
// and fails if anything is not as expected.
package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"sync"

	"sema/lab/adaptive"
	"sema/lab/page"
)

func main() {
	seeds := flag.Int("seeds", 10, "how many seeds")
	out := flag.String("out", "", "write the figures, and one run of the case that changes, into this directory")
	flag.Parse()
	if err := run(*seeds, *out); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(seeds int, out string) error {
	cases := adaptive.Cases()
	rows := make([]adaptive.Row, len(cases))
	errs := make([]error, len(cases))
	turns := make(chan struct{}, 2)
	var all sync.WaitGroup
	for i := range cases {
		all.Go(func() {
			turns <- struct{}{}
			defer func() { <-turns }()
			rows[i].Name = cases[i].Name
			rows[i].Figures, errs[i] = adaptive.Try(&cases[i], 1, seeds)
		})
	}
	all.Wait()
	for i, err := range errs {
		if err != nil {
			return err
		}
		fmt.Printf("%-55s %+v\n", rows[i].Name, rows[i].Figures)
	}
	if out == "" {
		return nil
	}
	for i := range cases {
		if c := &cases[i]; c.Changes() {
			var samples []adaptive.Sample
			for k, s := range adaptive.Run(c.Model, adaptive.NewAdapting(c.Model), 1).Samples {
				if k%5 == 0 { // what a picture shows
					samples = append(samples, s)
				}
			}
			if err := page.Save(filepath.Join(out, "model.json"), samples, ""); err != nil {
				return err
			}
		}
	}
	return page.Save(filepath.Join(out, "figures.json"), rows, "\t")
}
