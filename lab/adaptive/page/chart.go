package main

import (
	"fmt"
	"math"
	"strings"
)

// series is a figure that changes with time, in seconds.
type series struct {
	Name  string
	at    []float64
	value []float64
}

// Sizes in pixels.
const (
	width, height            = 860, 300
	left, right, top, bottom = 46, 14, 76, 30
	letter                   = 8
)

type (
	gridLine  struct{ From, To, At, Left, Base, Text any }
	timeLabel struct{ At, Base, Text any }
	line      struct{ Class, Path, KeyFrom, KeyText, Name any }
)

// picture is what the template wants.
type picture struct {
	Title, Note   string
	Width, Height int
	Grid          []gridLine
	Times         []timeLabel
	Lines         []line
}

// draw lays out series that share their axes. Each value holds until the next.
func draw(title, note string, all []series) picture {
	p := picture{Title: title, Note: note, Width: width, Height: height}
	last, most := 0.0, 0.0
	for _, s := range all {
		for i := range s.at {
			last, most = max(last, s.at[i]), max(most, s.value[i])
		}
	}
	x := func(at float64) float64 { return left + at/last*(width-left-right) }
	y := func(v float64) float64 { return height - bottom - v/most*(height-top-bottom) }
	for v, step := 0.0, round(most/4); v <= most; v += step {
		p.Grid = append(p.Grid, gridLine{left, width - right, px(y(v)), left - 6, px(y(v) + 4), fmt.Sprint(v)})
	}
	for at := 0.0; at <= last; at += 60 {
		p.Times = append(p.Times, timeLabel{px(x(at)), height - 10, fmt.Sprintf("%.0f min", at/60)})
	}
	key := left
	for i, s := range all {
		var path strings.Builder
		for k := range s.at {
			switch {
			case k == 0:
				fmt.Fprintf(&path, "M%s %s", px(x(s.at[k])), px(y(s.value[k])))
			case s.value[k] != s.value[k-1]:
				fmt.Fprintf(&path, "H%sV%s", px(x(s.at[k])), px(y(s.value[k])))
			}
		}
		fmt.Fprintf(&path, "H%s", px(x(last)))
		p.Lines = append(p.Lines, line{fmt.Sprintf("c%d", i), path.String(), key, key + 28, s.Name})
		key += 28 + letter*(len(s.Name)+3)
	}
	return p
}

// round is the next of 1, 2, 5, 10 and so on.
func round(v float64) float64 {
	ten := math.Pow(10, math.Floor(math.Log10(v)))
	for _, of := range []float64{1, 2, 5} {
		if v <= of*ten {
			return of * ten
		}
	}
	return 10 * ten
}

func px(f float64) string { return fmt.Sprintf("%.1f", f) }
