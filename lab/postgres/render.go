package main

import (
	_ "embed"
	"fmt"
	"slices"
	"strings"
	"text/template"

	"sema/internal/measure"
	"sema/lab/faults"
	"sema/lab/page"
)

//go:embed data.md.tmpl
var words string

// page makes the page. All words are in the template, and every figure is measured.
func (r *results) page() ([]byte, error) {
	return page.Fill(words, template.FuncMap{
		"times": r.times, "old": r.old,
		"percent": func(f float64) string { return measure.Digits(100*f, 2) + " %" },
		"seconds": func() string { return measure.Duration(float64(r.Waiting.Served)) },
	}, r)
}

// times is a ratio as the page shows it.
func (r *results) times(row, beside string) (string, error) {
	i := slices.IndexFunc(r.Ratios, func(one ratio) bool { return one.Row == row && one.Beside == beside })
	if i < 0 {
		return "", fmt.Errorf("%s beside %s was not measured", row, beside)
	}
	is := r.Ratios[i].Is
	return fmt.Sprintf("%s (%s–%s)", measure.Digits(is.Median, 2), measure.Digits(is.Min, 2), measure.Digits(is.Max, 2)), nil
}

// old is how long the old transaction lasted.
func (r *results) old() string {
	for _, one := range r.Ratios {
		if one.Row == oldTx {
			return one.Beside
		}
	}
	return ""
}

// faultsOfKind is what rounds of faults on a ground came to.
type faultsOfKind struct {
	Ground     string `json:"ground"`
	Rounds     int    `json:"rounds"`
	Faults     int    `json:"faults"`
	Grants     int    `json:"grants"`
	Violations int    `json:"violations"`
	Excused    int    `json:"excused"`
}

// sumUp sums up the rounds in a file that make faults wrote.
func (r *results) sumUp(file string) error {
	rounds, err := faults.ReadResults(file)
	if err != nil {
		return err
	}
	r.Faults = nil
	for _, one := range rounds {
		if one.Void != "" || one.Planted != "" || !strings.HasPrefix(one.Ground, "postgres") {
			continue
		}
		i := slices.IndexFunc(r.Faults, func(of faultsOfKind) bool { return of.Ground == one.Ground })
		if i < 0 {
			i, r.Faults = len(r.Faults), append(r.Faults, faultsOfKind{Ground: one.Ground})
		}
		of := &r.Faults[i]
		of.Rounds++
		of.Faults += len(one.Faults)
		of.Grants += one.Load.Grants
		of.Violations += one.Violations
		of.Excused += one.Excused
	}
	return nil
}
