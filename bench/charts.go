package main

import (
	"slices"
	"strings"

	"sema/internal/measure"
	"sema/lab/chart"
)

// drawing shows one figure of one scenario.
type drawing struct {
	file, title, note, scenario string
	column                      measure.Column
	log                         bool
}

const pairsNote = "Pairs of acquire and release in a second; the scale is logarithmic."

var drawings = []drawing{
	{"bench-alone.svg", "One caller, nobody else: throughput", pairsNote, "uncontended", rate, true},
	{"bench-free.svg", "64 callers, a permit for each: throughput", pairsNote, "64-of-64", rate, true},
	{"bench-hold.svg", "512 callers share 8 permits, 10 ms of work each: throughput", "How much of the rate that limit and work allow.", "512-of-8-hold-10ms", percent, false},
	{"bench-p99.svg", "512 callers share 8 permits, 10 ms of work each: waits", "99 of 100 waits are shorter.", "512-of-8-hold-10ms", p99, false},
	{"bench-busy.svg", "64 callers in 4 processes, 8 permits, no work: throughput", pairsNote, "4x16-of-8", rate, true},
}

// libraries are what the names of a library's contestants begin with. A name belongs to
// the first that fits.
var libraries = []string{"sema", "classic-", "redisson-go-", "redisson-", "node-redis-"}

// drawn are the contestants of a picture: sema with its defaults, and of each library the
// semaphore that made the most pairs, by the rules of best.
func drawn(c *measure.Case) (all []measure.Series) {
	groups := make([]measure.Case, len(libraries))
	for _, s := range c.Contestants {
		if s.Name == "sema" && len(s.Rounds) > 0 {
			all = append(all, s)
		} else if i := slices.IndexFunc(libraries, func(l string) bool { return strings.HasPrefix(s.Name, l) }); i >= 0 && isKind(s, semaphore) {
			groups[i].Contestants = append(groups[i].Contestants, s)
		}
	}
	for _, g := range groups {
		g.Limit = c.Limit
		if s, ok := best(&g, measure.Rate, 1); ok {
			all = append(all, s)
		}
	}
	return all
}

// chart is the drawing of a run. Contestants without the figure are left out, and without
// the scenario all of them.
func (d drawing) chart(r *results) chart.Chart {
	c := chart.Chart{Title: d.title, Note: d.note + " Lines from the least to the greatest round.", Log: d.log}
	one := r.find(d.scenario)
	if one == nil {
		return c
	}
	for _, s := range drawn(one) {
		colour := 1
		if strings.HasPrefix(s.Name, "sema") {
			colour = 0
		}
		if f := d.column.Of(*one, s); f.Median > 0 {
			c.Groups = append(c.Groups, chart.Group{Name: s.Name, Bars: []chart.Bar{{Series: colour, Value: f.Median, Min: f.Min, Max: f.Max, Text: d.column.Show(f.Median)}}})
		}
	}
	return c
}
