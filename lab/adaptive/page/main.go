// Command page writes docs/data/adaptive.md and the pictures from the results of make adapt and
// make adapt-real. Run it at the root of the repository.
package main

import (
	"embed"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"text/template"

	"sema/lab/adaptive"
)

//go:embed data.md.tmpl chart.svg.tmpl
var templates embed.FS

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

// page is what the template of the page wants.
type page struct {
	Rows   []adaptive.Row
	Others []other
	Real   real
	Model  []adaptive.Sample
}

func write(from, to string) error {
	var p page
	for file, v := range map[string]any{"figures.json": &p.Rows, "others.json": &p.Others, "real.json": &p.Real, "model.json": &p.Model} {
		text, err := os.ReadFile(filepath.Join(from, file))
		if err == nil {
			err = json.Unmarshal(text, v)
		}
		if err != nil {
			return err
		}
	}
	funcs := template.FuncMap{
		"one":     func(v float64) string { return fmt.Sprintf("%.1f", v) },
		"percent": func(v float64) string { return fmt.Sprintf("%.1f %%", 100*v) },
		"ours":    p.ours,
	}
	t, err := template.New("").Funcs(funcs).ParseFS(templates, "*.tmpl")
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Join(to, "data"), 0o755); err != nil {
		return err
	}
	for name, data := range map[string]struct {
		template string
		data     any
	}{
		"data/adaptive.md":   {"data.md.tmpl", p},
		"adaptive-model.svg": {"chart.svg.tmpl", p.model()},
		"adaptive-real.svg":  {"chart.svg.tmpl", p.Real.chart()},
	} {
		var text strings.Builder
		if err := t.ExecuteTemplate(&text, data.template, data.data); err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(to, name), []byte(text.String()), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// ours is the limit that adapts in the case of another limiter's row.
func (p page) ours(name string) (adaptive.Row, error) {
	for _, r := range p.Rows {
		if r.Name == name {
			return r, nil
		}
	}
	return adaptive.Row{}, fmt.Errorf("no figures of %q", name)
}

// model is one run of the case whose capacity changes.
func (p page) model() picture {
	all := []series{{Name: "capacity"}, {Name: "at work"}, {Name: "limit"}}
	for _, s := range p.Model {
		for i, v := range []int{s.Capacity, s.Served, s.Limit} {
			all[i].at, all[i].value = append(all[i].at, s.At.Seconds()), append(all[i].value, float64(v))
		}
	}
	return draw("A server that takes 40, then 12, then 80", "20 processes, simulated; it refuses what is beyond, and nobody tells anybody how much it takes", all)
}

// chart is what real processes did.
func (r real) chart() picture {
	all := []series{{Name: "capacity"}, {Name: "at work"}, {Name: "limit"}}
	for _, s := range r.Samples {
		for i, v := range []int{s.Capacity, s.Busy, s.Limit} {
			all[i].at, all[i].value = append(all[i].at, s.At), append(all[i].value, float64(v))
		}
	}
	return draw("The same with real processes: 8, then 40, then 12", fmt.Sprintf("%d processes with %d callers each, on Redis, and an HTTP server that answers 429", r.Processes, r.Callers), all)
}
