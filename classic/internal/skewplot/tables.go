package main

import (
	"fmt"
	"strings"

	"sema/classic/internal/measured"
)

func roundTrips(all []measured.RoundTrips) string {
	var b strings.Builder
	b.WriteString("| round trips | acquire | acquire, refused | refresh | release |\n|---|---:|---:|---:|---:|\n")
	for _, r := range all {
		refresh := "–"
		if r.Refresh > 0 {
			refresh = fmt.Sprint(r.Refresh)
		}
		fmt.Fprintf(&b, "| %s | %d | %d | %s | %d |\n", title(r.Type), r.Acquire, r.Refused, refresh, r.Release)
	}
	return b.String()
}

func spread(s measured.Skew) string {
	return fmt.Sprintf(
		"%d clients, limit %d (Lock: 1), each permit held about %d ms of a lease of %d s, %d s of virtual time; Redis %s.\n"+
			"Extra permits of all that were granted, and the most holders at once:\n\n",
		s.Clients, s.Limit, s.HoldMS, s.LeaseMS/1000, s.RunMS/1000, s.Redis) + runs(s.Spread)
}

func near(s measured.Skew) string {
	n := s.Near
	return fmt.Sprintf(
		"%d clients, limit %d, each permit held about %d ms of a lease of %d ms, %d s of virtual time;\n"+
			"one clock is ahead of all others by the skew:\n\n",
		n.Clients, n.Limit, n.HoldMS, n.LeaseMS, n.RunMS/1000) + runs(n.Runs)
}

// runs is a table with a row for each type and a column for each skew.
func runs(all []measured.SkewRun) string {
	var b strings.Builder
	b.WriteString("| skew |")
	line := "|---|"
	for _, r := range all {
		if r.Type == all[0].Type {
			fmt.Fprintf(&b, " %d ms |", r.SkewMS)
			line += "---:|"
		}
	}
	b.WriteString("\n" + line)
	last := ""
	for _, r := range all {
		if r.Type != last {
			fmt.Fprintf(&b, "\n| %s |", title(r.Type))
			last = r.Type
		}
		fmt.Fprintf(&b, " %d of %d, max %d |", r.Extra, r.Acquired, r.Most)
	}
	return b.String() + "\n"
}

// title is a variant's name as the page writes it.
func title(variant string) string {
	if name, ok := strings.CutSuffix(variant, " Lua"); ok {
		return "`" + name + "`, Lua"
	}
	return "`" + variant + "`"
}
