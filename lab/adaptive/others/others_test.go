package others

import (
	"encoding/json"
	"flag"
	"os"
	"testing"
	"testing/synctest"

	"sema/internal/fixture/expect"
	"sema/lab/adaptive"
)

var (
	seeds = flag.Int("seeds", 1, "how many seeds")
	out   = flag.String("out", "", "write the figures to this file")
)

// What a process may be given: as much in all as the limit that adapts.
const (
	least = 1
	most  = 500 / adaptive.Processes
	first = 1
)

var contestants = []struct {
	Name string
	One  func() limiter
}{
	{"failsafe-go's adaptive limiter", func() limiter { return newFailsafe(least, most, first) }},
	{"gradient, as published by Netflix", func() limiter { return newGradient(least, most, first) }},
}

// Row is what the runs of a case came to.
type Row struct {
	Limiter, Name string
	adaptive.Figures
}

// TestOthers runs the cases that are about the server alone. The limiters keep to their
// ranges; what they come to is for the page. Without -out it runs those in which nobody
// is refused: refusals are so many that the others take minutes.
func TestOthers(t *testing.T) {
	var rows []Row
	for _, c := range adaptive.Cases() {
		if other := c.Name != "40" && !c.Changes() && !c.Slow; other || *out == "" && !c.Slow {
			continue
		}
		for _, l := range contestants {
			row := Row{Limiter: l.Name, Name: c.Name}
			for seed := range *seeds {
				synctest.Test(t, func(t *testing.T) {
					r := adaptive.Run(c.Model, newFleet(l.One), uint64(seed+1))
					for _, s := range r.Samples {
						if s.Limit < least*adaptive.Processes || s.Limit > most*adaptive.Processes {
							t.Fatalf("%s, %s: the limits are %d in all", l.Name, c.Name, s.Limit)
						}
					}
					row.Add(r, &c)
				})
			}
			t.Logf("%-36s %-50s %+v", l.Name, c.Name, row.Figures)
			rows = append(rows, row)
		}
	}
	if *out != "" {
		text, err := json.MarshalIndent(rows, "", "\t")
		expect.OK(t, err)
		expect.OK(t, os.WriteFile(*out, append(text, '\n'), 0o644))
	}
}
