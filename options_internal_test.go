package sema

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"sema/engine"
	"sema/internal/client"
	"sema/internal/fixture/expect"
)

// The defaults and ranges on the page come from comments. Here they are compared with the code.
func TestThePageOfOptionsHasTheDefaultsOfTheCode(t *testing.T) {
	page, err := os.ReadFile("docs/options.md")
	expect.OK(t, err)
	o, short := Options{}.withDefaults(), Options{Lease: 5 * time.Second}.withDefaults()
	for option, says := range map[string][]string{
		"Lease":        {"| " + span(o.Lease) + " |", span(engine.MinLease) + " … " + span(engine.MaxLease)},
		"Margin":       {fmt.Sprintf("%s of the lease, at most %s |", part(short.Lease, short.Margin), words(o.Margin))},
		"Renew":        {fmt.Sprintf("| %s of the lease less the margin,", part(o.Lease-o.Margin, o.Renew))},
		"MaxHold":      {"At least " + span(engine.MinLease)},
		"OnConflict":   {"| " + map[LimitPolicy]string{LimitNewest: "LimitNewest", LimitStored: "LimitStored"}[o.OnConflict] + " |"},
		"Patient":      {"for " + words(client.Patience) + " if it has no place yet"},
		"AnswerWithin": {"| " + words(client.Patience) + " |"},
		"HeadStart":    {"0 … " + span(maxHeadStart)},
		"For":          {fmt.Sprintf("1 … %d bytes", engine.MaxKey)},
	} {
		_, row, found := strings.Cut(string(page), "\n| `"+option+"` |")
		row, _, _ = strings.Cut(row, "\n")
		for _, want := range says {
			if !found || !strings.Contains(row, want) {
				t.Errorf("%s: the page does not say %q, but%s", option, want, row)
			}
		}
	}
}

// span writes a time as the page does.
func span(d time.Duration) string {
	switch {
	case d%(24*time.Hour) == 0 && d > 24*time.Hour:
		return fmt.Sprintf("%d days", d/(24*time.Hour))
	case d%time.Hour == 0:
		return fmt.Sprintf("%d h", d/time.Hour)
	case d%time.Second == 0:
		return fmt.Sprintf("%d s", d/time.Second)
	}
	return fmt.Sprintf("%d ms", d/time.Millisecond)
}

// words writes some seconds as the page does.
func words(d time.Duration) string {
	return map[time.Duration]string{time.Second: "one second", 3 * time.Second: "three seconds"}[d]
}

// part says which part of a time another one is.
func part(whole, d time.Duration) string {
	return map[time.Duration]string{3: "a third", 10: "a tenth"}[whole/d]
}
