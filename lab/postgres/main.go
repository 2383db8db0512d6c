// Command postgres measures semaphores in PostgreSQL, and in turns two that one would write by hand, and writes
// docs/data/postgres.md.
//
//	bin/lab-postgres          # at the root of the repository; some minutes, on an idle machine
//	bin/lab-postgres -draw    # the page alone, of the last results
//	bin/lab-postgres -faults faults.json   # what rounds of make faults on its grounds came to, and the page
package main

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"time"

	"sema/internal/measure"
	"sema/lab/page"
)

// results are what was measured.
type results struct {
	Server  string         `json:"server"`
	Go      string         `json:"go"`
	Rounds  int            `json:"rounds"`
	Ratios  []ratio        `json:"ratios"`
	Waiting waiting        `json:"waiting"`
	Faults  []faultsOfKind `json:"faults"`
}

// ratio is a figure of ours over another one's, round by round.
type ratio struct {
	Row    string         `json:"row"`
	Beside string         `json:"beside"`
	Is     measure.Spread `json:"is"`
}

func main() {
	file := flag.String("results", "lab/postgres/results.json", "what was measured")
	docs := flag.String("docs", "docs/data", "directory of the page")
	draw := flag.Bool("draw", false, "measure nothing")
	played := flag.String("faults", "", "measure nothing; sum up this `file` that make faults wrote")
	rounds := flag.Int("rounds", 5, "how often each has its turn")
	turn := flag.Duration("turn", 2*time.Second, "how long that is")
	crowd := flag.Int("waiting", 1000, "how many processes wait for one permit; 0: none")
	old := flag.Duration("old", 10*time.Minute, "how long an old transaction lasts")
	only := flag.String("only", "", "measure this part alone: pairs, hand-off, bystanders, old or waiting")
	flag.Parse()
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt)
	defer cancel()
	if err := run(ctx, *file, *docs, *played, *draw, plan{measure.Plan{Rounds: *rounds, Round: *turn, Warmup: *turn / 2, Strict: true}, *old, *crowd, *only}); err != nil {
		fmt.Fprintln(os.Stderr, "postgres:", err)
		os.Exit(1)
	}
}

type plan struct {
	measure.Plan
	old   time.Duration
	crowd int
	only  string
}

func run(ctx context.Context, file, docs, played string, draw bool, p plan) error {
	var r results
	err := page.Load(file, &r)
	if err != nil && (draw || played != "") {
		return err
	}
	save := func() error { return page.Save(file, r, "\t") }
	switch {
	case draw:
		err = nil
	case played != "":
		err = cmp.Or(r.sumUp(played), save())
	default:
		err = r.measure(ctx, p, save)
	}
	if err != nil {
		return err
	}
	text, err := r.page()
	if err != nil {
		return err
	}
	return page.Write(docs, map[string][]byte{"postgres.md": text})
}
