package main

import (
	"sema/internal/measure"
	"sema/lab/chart"
)

// drawing shows one figure of all contestants in a few scenarios: a group for
// each contestant, in it a bar for each scenario.
type drawing struct {
	file, title, note string
	scenarios         []string
	column            measure.Column
	log               bool
}

var held = []string{"64-of-8-hold-1ms", "512-of-8-hold-1ms", "64-of-8-hold-10ms", "512-of-8-hold-10ms"}

var drawings = []drawing{
	{"bench-free.svg", "Nobody has to wait: throughput", "pairs of acquire and release in a second; the scale is logarithmic", []string{"uncontended", "64-of-64", "512-of-512"}, rate, true},
	{"bench-hold.svg", "Limit 8, with work to do: throughput", "per cent of what is possible", held, percent, false},
	{"bench-busy.svg", "Limit 8, nothing to do while holding: throughput", "pairs of acquire and release in a second; the scale is logarithmic", []string{"64-of-8", "4x16-of-8", "4x256-of-8"}, rate, true},
	{"bench-p99.svg", "Limit 8, with work to do: the 99th percentile of the waits", "less is better; the scale is logarithmic", held, p99, true},
}

// chart is the drawing of a run. Scenarios that it has not, and contestants without the
// figure, are left out.
func (d drawing) chart(r *results) chart.Chart {
	c := chart.Chart{Title: d.title, Note: d.note + "; lines from the least to the greatest round", Series: make([]string, len(d.scenarios)), Log: d.log}
	for _, peer := range all {
		g := chart.Group{Name: peer.Name}
		for k, name := range d.scenarios {
			one := r.find(name)
			if one == nil {
				continue
			}
			c.Series[k] = name
			if f := d.column.Of(*one, one.Series(peer.Name)); f.Median > 0 {
				g.Bars = append(g.Bars, chart.Bar{Series: k, Value: f.Median, Min: f.Min, Max: f.Max, Text: d.column.Show(f.Median)})
			}
		}
		if len(g.Bars) > 0 {
			c.Groups = append(c.Groups, g)
		}
	}
	return c
}
