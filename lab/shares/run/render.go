package main

import (
	"cmp"
	_ "embed"
	"fmt"
	"slices"
	"strings"
	"text/template"
	"time"

	"sema/internal/measure"
	"sema/lab/chart"
	"sema/lab/page"
	"sema/lab/shares"
)

//go:embed shares.md.tmpl
var words string

// figure selects a figure of a tenant.
type figure func(tenant) float64

var (
	p50     figure = func(t tenant) float64 { return t.P50 }
	p99     figure = func(t tenant) float64 { return t.P99 }
	longest figure = func(t tenant) float64 { return t.Longest }
	held    figure = func(t tenant) float64 { return t.Held }
	rate    figure = func(t tenant) float64 { return t.Rate }
)

// of is a figure of all rounds, in their order by size.
func (r results) of(scene string, o shares.Order, kind string, f figure) (all []float64) {
	for _, one := range r.Rounds {
		if one.Scene == scene && one.Order == o {
			all = append(all, f(one.Kinds[kind]))
		}
	}
	slices.Sort(all)
	return all
}

// sceneOf is the scene of a name.
func sceneOf(name string) scene {
	return scenes[slices.IndexFunc(scenes, func(s scene) bool { return s.name == name })]
}

func median(all []float64) float64 { return all[len(all)/2] }

// render makes the page and its picture, by name. All words are in the template, and
// every figure is measured.
func (r results) render() (map[string][]byte, error) {
	for _, s := range scenes {
		for _, o := range s.orders {
			if len(r.of(s.name, o, "", held)) == 0 {
				return nil, fmt.Errorf("%s was not measured with %s", s.name, o)
			}
		}
	}
	text, err := page.Fill(words, template.FuncMap{
		"waits": r.waits, "held": r.held, "levels": r.levels, "rounds": func() int { return len(r.of("light", shares.Shares, "", held)) },
		"pools":  r.pools,
		"widest": func() string { return show(slices.Max(r.of("wide", shares.AtOnce, "wide", longest))) },
		"beside": func(kind string) string { return perSecond(median(r.of("wide", shares.AtOnce, kind, rate))) },
		"p99":    func(o shares.Order) string { return show(median(r.of("light", o, "light", p99))) },
	}, r)
	if err != nil {
		return nil, err
	}
	files := map[string][]byte{"shares.md": text}
	for name, c := range map[string]chart.Chart{
		"shares-waits.svg": r.picture("light", "light", "Beside a tenant with 1,000 callers: how long the other 99 wait",
			"limit 20, permits held for 100 ms, 4 processes on a Redis"),
		"shares-levels.svg": r.picture("levels", "small", "Beside an organisation of 1,000 users: how long 50 small ones wait",
			"limit 40, 32 an organisation, 4 a user, permits held for 1 s, 4 processes on a Redis"),
	} {
		picture, failed := c.SVG()
		files[name], err = picture, cmp.Or(err, failed)
	}
	return files, err
}

// picture is how long tenants of a kind wait in a scene, by order.
func (r results) picture(scene, kind, title, note string) chart.Chart {
	c := chart.Chart{
		Title: title, Note: note + "; the scale is logarithmic; lines from the least to the greatest round",
		Series: []string{"half of the waits are shorter", "99 of 100 are shorter"}, Log: true,
	}
	for _, o := range sceneOf(scene).orders {
		g := chart.Group{Name: string(o)}
		for series, f := range []figure{p50, p99} {
			all := r.of(scene, o, kind, f)
			g.Bars = append(g.Bars, chart.Bar{Series: series, Value: median(all), Min: all[0], Max: all[len(all)-1], Text: show(median(all))})
		}
		c.Groups = append(c.Groups, g)
	}
	return c
}

// show is a time in milliseconds.
func show(ms float64) string { return measure.Duration(ms * float64(time.Millisecond)) }

// waits returns the table of waiting times, of the light tenants and of the
// heavy one.
func (r results) waits() string {
	var b strings.Builder
	b.WriteString("| | the 99: half wait less than | 99 of 100 less than | longest | the one: half wait less than |\n|---|---:|---:|---:|---:|\n")
	for _, o := range orders {
		fmt.Fprintf(&b, "| %s |", o)
		for _, f := range []figure{p50, p99, longest} {
			fmt.Fprintf(&b, " %s |", show(median(r.of("light", o, "light", f))))
		}
		fmt.Fprintf(&b, " %s |\n", show(median(r.of("light", o, "heavy", p50))))
	}
	return b.String()
}

// levels is the table of the waits of small organisations beside a large one.
func (r results) levels() string {
	var b strings.Builder
	b.WriteString("| | used | the small: half wait less than | 99 of 100 less than | longest |\n|---|---:|---:|---:|---:|\n")
	s := sceneOf("levels")
	for _, o := range s.orders {
		var used []float64
		for _, one := range r.Rounds {
			if one.Scene == s.name && one.Order == o {
				used = append(used, 100*(one.Kinds["big"].Held+one.Kinds["small"].Held)/float64(s.limit))
			}
		}
		slices.Sort(used)
		fmt.Fprintf(&b, "| %s | %.0f %% |", o, median(used))
		for _, f := range []figure{p50, p99, longest} {
			fmt.Fprintf(&b, " %s |", show(median(r.of(s.name, o, "small", f))))
		}
		b.WriteString("\n")
	}
	return b.String()
}

// held is the table of how many permits tenants hold.
func (r results) held() string {
	var b strings.Builder
	b.WriteString("| | held for 10 s | held for 0.1 s |\n|---|---:|---:|\n")
	for _, o := range orders {
		fmt.Fprintf(&b, "| %s | %.1f | %.1f |\n", o, median(r.of("holds", o, "long", held)), median(r.of("holds", o, "short", held)))
	}
	return b.String()
}

// pools is the table of how many jobs of each kind begin.
func (r results) pools() string {
	var b strings.Builder
	b.WriteString("| | simulations a second | trainings | tests |\n|---|---:|---:|---:|\n")
	for _, o := range sceneOf("pools").orders {
		fmt.Fprintf(&b, "| %s |", o)
		for _, kind := range []string{"simulation", "training", "test"} {
			fmt.Fprintf(&b, " %s |", perSecond(median(r.of("pools", o, kind, rate))))
		}
		b.WriteString("\n")
	}
	return b.String()
}

func perSecond(n float64) string {
	if n < 10 {
		return fmt.Sprintf("%.2g", n)
	}
	return fmt.Sprintf("%.0f", n)
}
