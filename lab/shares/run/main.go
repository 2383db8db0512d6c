// Command run measures what tenants wait for and hold when they share a semaphore, and
// writes docs/shares.md of it.
//
//	bin/lab-shares-run          # at the root of the repository; half an hour
//	bin/lab-shares-run -draw    # the page alone, of the last results
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"

	"sema/internal/fixture/child"
	"sema/lab/page"
	"sema/lab/shares"
)

func main() {
	shares.Role()
	child.Play()
	file := flag.String("results", "lab/shares/run/results.json", "what was measured")
	docs := flag.String("docs", "docs", "directory of the page and its picture")
	draw := flag.Bool("draw", false, "measure nothing")
	rounds := flag.Int("rounds", 3, "how often each order has its turn")
	only := flag.String("scene", "", "measure this scene alone, and leave the results of the others")
	flag.Parse()
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt)
	defer cancel()
	if err := run(ctx, *file, *docs, *only, *draw, *rounds); err != nil {
		fmt.Fprintln(os.Stderr, "shares:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, file, docs, only string, draw bool, rounds int) error {
	if !draw {
		var old results
		if only != "" {
			if err := page.Load(file, &old); err != nil {
				return err
			}
		}
		r, err := play(ctx, rounds, only)
		if err != nil {
			return err
		}
		for _, one := range old.Rounds {
			if one.Scene != only {
				r.Rounds = append(r.Rounds, one)
			}
		}
		if err := page.Save(file, r, "\t"); err != nil {
			return err
		}
	}
	var r results
	if err := page.Load(file, &r); err != nil {
		return err
	}
	files, err := r.render()
	if err != nil {
		return err
	}
	return page.Write(docs, files)
}
