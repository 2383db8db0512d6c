// Package chart draws charts of bars as SVG, for light and dark pages.
package chart

import (
	"bytes"
	_ "embed"
	"fmt"
	"math"
	"text/template"
)

//go:embed chart.svg.tmpl
var page string

var svg = template.Must(template.New("chart").Parse(page))

// Chart has a group of bars for each row. Beside each bar stands its value, so there is
// no axis to read.
type Chart struct {
	Title, Note string
	Series      []string // what the bars of a colour are, four at most
	Groups      []Group
	Log         bool // the scale begins at a power of ten; without it, at 0
}

// Group is a row.
type Group struct {
	Name string
	Bars []Bar
}

// Bar is one value, of one of the series. A line leads from its least to its greatest.
type Bar struct {
	Series          int
	Value, Min, Max float64 // above 0
	Text            string  // the value, as it is shown
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
	Chart
	Width, Height  int
	Labels, Values []text
	Bars, Legend   []shape
}

// SVG draws it.
func (c Chart) SVG() ([]byte, error) {
	var b bytes.Buffer
	if err := svg.Execute(&b, c.draw()); err != nil {
		return nil, fmt.Errorf("chart: %w", err)
	}
	return b.Bytes(), nil
}

// draw lays the chart out.
func (c Chart) draw() picture {
	p := picture{Chart: c, Width: width}
	at := left
	for k, name := range c.Series {
		if name == "" {
			continue
		}
		p.Legend = append(p.Legend, shape{X: at, Y: top - 22, Width: 10, Class: k})
		p.Labels = append(p.Labels, text{at + 14, top - 13, "start", name})
		at += 14 + letter*(len(name)+2)
	}
	low, high, x0 := math.Inf(1), 0.0, 0
	for _, g := range c.Groups {
		x0 = max(x0, left+letter*(len(g.Name)+1))
		for _, b := range g.Bars {
			low, high = min(low, b.Min), max(high, b.Max)
		}
	}
	low = math.Pow(10, math.Floor(math.Log10(low)-0.01))
	place := func(v float64) float64 {
		share := v / high
		if c.Log {
			share = math.Log(v/low) / math.Log(high/low)
		}
		return float64(x0) + max(0, share)*float64(width-right-x0)
	}
	y := top
	for _, g := range c.Groups {
		first := y
		for _, b := range g.Bars {
			p.Bars = append(p.Bars, shape{x0, y, px(place(b.Value) - float64(x0)), b.Series, px(place(b.Min)), px(place(b.Max)), px(float64(y) + (bar-2)/2.0)})
			p.Values = append(p.Values, text{px(place(b.Max) + 5), y + bar - 3, "start", b.Text})
			y += bar
		}
		p.Labels = append(p.Labels, text{x0 - letter, (first+y)/2 + 4, "end", g.Name})
		y += apart
	}
	p.Height = y
	return p
}

func px(f float64) string { return fmt.Sprintf("%.1f", f) }
