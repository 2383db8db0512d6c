package report

import (
	"bytes"
	"image/color"
	"math"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"

	"sema/bench/internal/peers"
	"sema/bench/internal/results"
	"sema/internal/measure"
)

// chart shows one figure of all contestants in a few scenarios.
type chart struct {
	file, title, axis string
	scenarios         []string
	log               bool
	figure            func(results.Scenario, results.Contestant) measure.Spread
}

var charts = []chart{
	{"bench-free.svg", "Throughput while nobody has to wait", "pairs of acquire and release per second",
		[]string{"uncontended", "64-of-64", "512-of-512"}, false, rate},
	{"bench-hold.svg", "Throughput with limit 8 and work to do", "per cent of what is possible",
		[]string{"64-of-8-hold-1ms", "512-of-8-hold-1ms", "64-of-8-hold-10ms", "512-of-8-hold-10ms"}, false, share},
	{"bench-busy.svg", "Throughput with limit 8 and nothing to do while holding", "pairs of acquire and release per second",
		[]string{"64-of-8", "4x16-of-8", "4x256-of-8"}, false, rate},
	{"bench-p99.svg", "Waits with limit 8 and work to do: the 99th percentile", "milliseconds, each line ten times the last",
		[]string{"64-of-8-hold-1ms", "512-of-8-hold-1ms", "64-of-8-hold-10ms", "512-of-8-hold-10ms"}, true, waits},
}

func rate(_ results.Scenario, c results.Contestant) measure.Spread { return c.Rate() }

func share(s results.Scenario, c results.Contestant) measure.Spread {
	return scaled(s.Possible(c), 100)
}

func waits(_ results.Scenario, c results.Contestant) measure.Spread { return scaled(p99(c), 1e-6) }

func scaled(s measure.Spread, by float64) measure.Spread {
	return measure.Spread{Median: s.Median * by, Min: s.Min * by, Max: s.Max * by}
}

// shades tell the scenarios of a chart apart, also in grey.
var shades = []color.Color{
	color.RGBA{0x08, 0x30, 0x6b, 0xff}, color.RGBA{0x42, 0x92, 0xc6, 0xff},
	color.RGBA{0xd9, 0x5f, 0x0e, 0xff}, color.RGBA{0xfe, 0xc4, 0x4f, 0xff},
}

const (
	bar   = vg.Length(7)  // thickness
	gap   = vg.Length(5)  // between two contestants
	frame = vg.Length(90) // title, axis and key together
	width = vg.Length(640)
	sans  = "Liberation"

	family = "font-family:Liberation Sans" // as the pictures say it
)

// draw makes the picture: a group for each contestant, in it a bar for each
// scenario, or a dot where the axis is logarithmic, with whiskers from the
// least to the greatest round.
func (c chart) draw(run results.Run) ([]byte, error) {
	var scenarios []results.Scenario
	for _, name := range c.scenarios {
		if s, ok := find(run, name); ok {
			scenarios = append(scenarios, s)
		}
	}
	rows := c.rows(scenarios)
	p := plot.New()
	p.Title.Text, p.X.Label.Text = c.title, c.axis
	p.Title.TextStyle.Font.Variant, p.Title.TextStyle.Font.Size = "Sans", 13
	for _, f := range []*font.Font{&p.X.Label.TextStyle.Font, &p.X.Tick.Label.Font, &p.Y.Tick.Label.Font, &p.Legend.TextStyle.Font} {
		f.Typeface, f.Variant, f.Size = sans, "Sans", 10
	}
	p.Title.Padding, p.Legend.Padding, p.Legend.ThumbnailWidth = 8, 2, 14
	p.Legend.Top = true
	lines := plotter.NewGrid()
	lines.Horizontal.Width = 0
	p.Add(lines)
	// Height of a contestant, and where its bars are within it.
	high := bar*vg.Length(max(1, len(scenarios))) + gap
	for k, s := range scenarios {
		place := (float64(len(scenarios)-1)/2 - float64(k)) * float64(bar/high)
		if err := c.series(p, s, rows, shades[k%len(shades)], place); err != nil {
			return nil, err
		}
	}
	if len(rows) == 0 {
		p.HideAxes()
	} else {
		p.NominalY(labels(rows)...)
		p.Y.Min, p.Y.Max = -0.5, float64(len(rows))-0.5
		c.scale(p)
	}
	canvas := vgsvg.NewWith(vgsvg.UseWH(width, high*vg.Length(max(1, len(rows)))+frame))
	p.Draw(draw.New(canvas))
	var b bytes.Buffer
	if _, err := canvas.WriteTo(&b); err != nil {
		return nil, err
	}
	return bytes.ReplaceAll(b.Bytes(), []byte(family), []byte(family+",Arial,Helvetica,sans-serif")), nil
}

// scale sets the axis of values, with room for the key at its end.
func (c chart) scale(p *plot.Plot) {
	if !c.log {
		p.X.Min, p.X.Max = 0, p.X.Max*1.25
		return
	}
	p.X.Min, p.X.Max = math.Pow10(int(math.Floor(math.Log10(p.X.Min)))), p.X.Max*6
	p.X.Scale, p.X.Tick.Marker = plot.LogScale{}, plot.LogTicks{Prec: -1}
}

// labels make room for fonts that are wider than the one the picture was laid
// out with.
func labels(names []string) []string {
	wide := make([]string, len(names))
	for i, name := range names {
		wide[i] = name + strings.Repeat(" ", 3+len(name)/4)
	}
	return wide
}

// rows are the contestants that took part, from the bottom up.
func (c chart) rows(scenarios []results.Scenario) []string {
	var rows []string
	for i := len(peers.All) - 1; i >= 0; i-- {
		for _, s := range scenarios {
			if one := contestant(s, peers.All[i].Name); len(one.Rounds) > 0 && c.figure(s, one).Median > 0 {
				rows = append(rows, one.Name)
				break
			}
		}
	}
	return rows
}

// series adds one scenario.
func (c chart) series(p *plot.Plot, s results.Scenario, rows []string, shade color.Color, place float64) error {
	values := make(plotter.Values, len(rows))
	points := spreads{}
	for i, name := range rows {
		f := c.figure(s, contestant(s, name))
		if values[i] = f.Median; f.Median > 0 {
			points.XYs = append(points.XYs, plotter.XY{X: f.Median, Y: float64(i) + place})
			points.XErrors = append(points.XErrors, struct{ Low, High float64 }{f.Median - f.Min, f.Max - f.Median})
		}
	}
	if len(points.XYs) == 0 {
		return nil
	}
	whiskers, err := plotter.NewXErrorBars(points)
	if err != nil {
		return err
	}
	whiskers.CapWidth = bar / 2
	if c.log {
		dots, err := plotter.NewScatter(points.XYs)
		if err != nil {
			return err
		}
		dots.Color, dots.Shape, dots.Radius = shade, draw.CircleGlyph{}, bar/2
		whiskers.Color = shade
		p.Add(whiskers, dots)
		p.Legend.Add(labels([]string{s.Name})[0], dots)
		return nil
	}
	bars, err := plotter.NewBarChart(values, bar)
	if err != nil {
		return err
	}
	bars.Horizontal, bars.XMin, bars.Color, bars.LineStyle.Width = true, place, shade, 0
	whiskers.Width = vg.Length(math.Min(0.7, float64(bar)))
	p.Add(bars, whiskers)
	p.Legend.Add(labels([]string{s.Name})[0], bars)
	return nil
}

// spreads are points with whiskers.
type spreads struct {
	plotter.XYs
	plotter.XErrors
}
