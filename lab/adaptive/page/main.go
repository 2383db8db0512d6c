// Command page writes docs/data/adaptive.md and the pictures from the results of make adapt and
// make adapt-real. Run it at the root of the repository.
package main

import (
	_ "embed"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"text/template"

	"sema/lab/adaptive"
	"sema/lab/page"
)

var (
	//go:embed data.md.tmpl
	words string
	//go:embed chart.svg.tmpl
	svg string
)

func main() {
	from := flag.String("from", "lab/adaptive", "directory with what was measured")
	to := flag.String("to", "docs", "directory for data/adaptive.md and the pictures")
	flag.Parse()
	if err := write(*from, *to); err != nil {
		fmt.Fprintln(os.Stderr, "page:", err)
		os.Exit(1)
	}
}

// real is what lab/adaptive/real saw.
type real struct {
	Processes, Callers int
	Phases             []struct {
		Capacity        int
		Used, Refused   float64
		Calls, Refusals int
	}
	Samples []struct {
		At                    float64
		Limit, Capacity, Busy int
	}
}

// other is a row of lab/adaptive/others.
type other struct {
	Limiter string
	adaptive.Row
}

// results are what the template of the page wants.
type results struct {
	Rows   []adaptive.Row
	Others []other
	Real   real
	Model  []adaptive.Sample
}

func write(from, to string) error {
	var r results
	for file, v := range map[string]any{"figures.json": &r.Rows, "others.json": &r.Others, "real.json": &r.Real, "model.json": &r.Model} {
		if err := page.Load(filepath.Join(from, file), v); err != nil {
			return err
		}
	}
	text, err := page.Fill(words, template.FuncMap{
		"one":     func(v float64) string { return fmt.Sprintf("%.1f", v) },
		"percent": func(v float64) string { return fmt.Sprintf("%.1f %%", 100*v) },
		"ours":    r.ours,
	}, r)
	if err != nil {
		return err
	}
	model, err := page.Fill(svg, nil, r.model())
	if err != nil {
		return err
	}
	real, err := page.Fill(svg, nil, r.Real.chart())
	if err != nil {
		return err
	}
	return page.Write(to, map[string][]byte{"data/adaptive.md": text, "adaptive-model.svg": model, "adaptive-real.svg": real})
}

// ours is the limit that adapts in the case of another limiter's row.
func (r results) ours(name string) (adaptive.Row, error) {
	for _, row := range r.Rows {
		if row.Name == name {
			return row, nil
		}
	}
	return adaptive.Row{}, fmt.Errorf("no figures of %q", name)
}

// standing is how it stood at a moment: the capacity, what was at work, and the limit.
type standing struct {
	at    float64 // seconds
	value [3]int
}

// stood draws moments.
func stood(title, note string, moments []standing) picture {
	all := []series{{Name: "capacity"}, {Name: "at work"}, {Name: "limit"}}
	for _, m := range moments {
		for i, v := range m.value {
			all[i].at, all[i].value = append(all[i].at, m.at), append(all[i].value, float64(v))
		}
	}
	return draw(title, note, all)
}

// model is one run of the case whose capacity changes.
func (r results) model() picture {
	var all []standing
	for _, s := range r.Model {
		all = append(all, standing{s.At.Seconds(), [3]int{s.Capacity, s.Served, s.Limit}})
	}
	return stood("A server that takes 40, then 12, then 80", "20 processes, simulated; it refuses what is beyond, and nobody tells anybody how much it takes", all)
}

// chart is what real processes did.
func (r real) chart() picture {
	var all []standing
	for _, s := range r.Samples {
		all = append(all, standing{s.At, [3]int{s.Capacity, s.Busy, s.Limit}})
	}
	return stood("The same with real processes: 8, then 40, then 12", fmt.Sprintf("%d processes with %d callers each, on Redis, and an HTTP server that answers 429", r.Processes, r.Callers), all)
}
