// Package chart draws charts of bars as SVG, for light and dark pages.
package chart

import (
	"bytes"
	_ "embed"
	"fmt"
	"math"
	"strings"
	"text/template"
)

//go:embed chart.svg.tmpl
var page string

var svg = template.Must(template.New("chart").Parse(page))

// Chart has a group of bars for each row. Beside each bar stands its value, so there is
// no axis to read. It is made for a page that gives it 600 pixels.
type Chart struct {
	Title, Note string   // one line, at most 64 letters; as many as needed
	Series      []string // the legend: what the bars of a colour are, two at most; nil: there is none
	Groups      []Group
	Log         bool // the scale begins at a power of ten; without it, at 0
}

// Group is a row.
type Group struct {
	Name string
	Bars []Bar
}

// Bar is one value. A line leads from its least to its greatest.
type Bar struct {
	Series          int     // its colour: 0 or 1
	Value, Min, Max float64 // above 0
	Text            string  // the value, as it is shown
}

// Sizes in pixels. A letter gets more room than any usual font needs.
const (
	letter, left, right = 9, 10, 90
	width, top          = 600, 44
	noteLetters, note   = 84, 18 // a line of the note: its length, its height
	legend              = 24
	bar, thick, apart   = 20, 16, 6
)

// The shapes of a picture, as its template wants them.
type (
	text  struct{ X, Y, Class, Text any }
	shape struct{ X, Y, Width, Class, From, To, Middle any }
)

type picture struct {
	Chart
	Width, Height, Thick  int
	Notes, Labels, Values []text
	Bars, Legend          []shape
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
	p := picture{Chart: c, Width: width, Thick: thick}
	y := top
	for _, line := range wrap(c.Note) {
		p.Notes = append(p.Notes, text{X: left, Y: y, Text: line})
		y += note
	}
	at := left
	for k, name := range c.Series {
		p.Legend = append(p.Legend, shape{X: at, Y: y - 4, Width: 10, Class: k})
		p.Labels = append(p.Labels, text{at + 15, y + 6, "start", name})
		at += 15 + letter*(len(name)+2)
	}
	if c.Series != nil {
		y += legend
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
	for _, g := range c.Groups {
		first := y
		for _, b := range g.Bars {
			p.Bars = append(p.Bars, shape{x0, y, px(place(b.Value) - float64(x0)), b.Series, px(place(b.Min)), px(place(b.Max)), px(float64(y) + thick/2.0)})
			p.Values = append(p.Values, text{px(place(b.Max) + 5), y + thick - 3, "start", b.Text})
			y += bar
		}
		p.Labels = append(p.Labels, text{x0 - letter, (first+y)/2 + 3, "end", g.Name})
		y += apart
	}
	p.Height = y
	return p
}

// wrap breaks a note into lines.
func wrap(note string) (lines []string) {
	line := ""
	for _, word := range strings.Fields(note) {
		if line != "" && len(line)+1+len(word) > noteLetters {
			lines, line = append(lines, line), ""
		}
		line = strings.TrimSpace(line + " " + word)
	}
	return append(lines, line)
}

func px(f float64) string { return fmt.Sprintf("%.1f", f) }
