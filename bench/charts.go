package main

import (
	"fmt"
	"math"
	"slices"

	"sema/lab/measure"
)

// chart shows one figure of all contestants in a few scenarios: a group for
// each contestant, in it a bar for each scenario. Beside each bar stands its
// value, so there is no axis to read.
type chart struct {
	File, Title, Note string
	scenarios         []string
	column            measure.Column
	log               bool
}

var held = []string{"64-of-8-hold-1ms", "512-of-8-hold-1ms", "64-of-8-hold-10ms", "512-of-8-hold-10ms"}

var charts = []chart{
	{"bench-free.svg", "Nobody has to wait: throughput", "pairs of acquire and release in a second; the scale is logarithmic", []string{"uncontended", "64-of-64", "512-of-512"}, rate, true},
	{"bench-hold.svg", "Limit 8, with work to do: throughput", "per cent of what is possible", held, percent, false},
	{"bench-busy.svg", "Limit 8, nothing to do while holding: throughput", "pairs of acquire and release in a second; the scale is logarithmic", []string{"64-of-8", "4x16-of-8", "4x256-of-8"}, rate, true},
	{"bench-p99.svg", "Limit 8, with work to do: the 99th percentile of the waits", "less is better; the scale is logarithmic", held, p99, true},
}

// Sizes in pixels. A letter gets more room than any usual font needs.
const (
	letter, left, right = 8, 10, 90
	width, top          = 860, 78
	bar, apart          = 13, 9
)

// The shapes of a picture, as its template wants them.
type (
	text  struct{ X, Y, Class, Text any }
	shape struct{ X, Y, Width, Class, From, To, Middle any }
)

type picture struct {
	chart
	Width, Height  int
	Labels, Values []text
	Bars, Keys     []shape
}

// draw lays a chart out.
func (c chart) draw(r *results) picture {
	p := picture{chart: c, Width: width}
	var cases []*measure.Case
	at := left
	for k, name := range c.scenarios {
		if one := r.find(name); one != nil {
			cases = append(cases, one)
			p.Keys = append(p.Keys, shape{X: at, Y: top - 22, Width: 10, Class: k})
			p.Labels = append(p.Labels, text{at + 14, top - 13, "start", name})
			at += 14 + letter*(len(name)+2)
		}
	}
	names, low, high := c.rows(cases)
	x0 := 0
	for _, name := range names {
		x0 = max(x0, left+letter*(len(name)+1))
	}
	place := func(v float64) float64 {
		share := v / high
		if c.log {
			share = math.Log(v/low) / math.Log(high/low)
		}
		return float64(x0) + max(0, share)*float64(width-right-x0)
	}
	y := top
	for _, name := range names {
		first := y
		for _, one := range cases {
			if f := c.column.Of(*one, one.Series(name)); f.Median > 0 {
				k := slices.Index(c.scenarios, one.Name)
				p.Bars = append(p.Bars, shape{x0, y, px(place(f.Median) - float64(x0)), k, px(place(f.Min)), px(place(f.Max)), px(float64(y) + (bar-2)/2.0)})
				p.Values = append(p.Values, text{px(place(f.Max) + 5), y + bar - 3, "start", c.column.Show(f.Median)})
				y += bar
			}
		}
		p.Labels = append(p.Labels, text{x0 - letter, (first+y)/2 + 4, "end", name})
		y += apart
	}
	p.Height = y
	return p
}

// rows are the contestants that have the figure in any of the cases, and the
// range of their figures. A logarithmic scale begins at a power of ten.
func (c chart) rows(cases []*measure.Case) (names []string, low, high float64) {
	low = math.Inf(1)
	for _, peer := range all {
		found := false
		for _, one := range cases {
			if f := c.column.Of(*one, one.Series(peer.Name)); f.Median > 0 {
				low, high, found = min(low, f.Min), max(high, f.Max), true
			}
		}
		if found {
			names = append(names, peer.Name)
		}
	}
	return names, math.Pow(10, math.Floor(math.Log10(low)-0.01)), high
}

func px(f float64) string { return fmt.Sprintf("%.1f", f) }
