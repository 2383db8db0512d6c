// Command report makes a page of the results of the fault suite's rounds.
//
//	bin/lab-faults-report -out docs/data/faults.md faults.json …
package main

import (
	"cmp"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"sema/lab/faults"
)

func main() {
	out := flag.String("out", "", "write the page to this file")
	flag.Parse()
	if err := run(*out, flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "report:", err)
		os.Exit(1)
	}
}

func run(out string, names []string) error {
	var all []faults.Result
	for _, name := range names {
		results, err := faults.ReadResults(name)
		if err != nil {
			return err
		}
		all = append(all, results...)
	}
	if len(all) == 0 {
		return fmt.Errorf("no round was played; try: make faults")
	}
	text := &strings.Builder{}
	page(text, all)
	return os.WriteFile(out, []byte(text.String()), 0o644)
}

// sum is what some rounds come to.
type sum struct {
	rounds, times, grants, violations, excused int

	took       time.Duration
	recoveries []time.Duration
	worst      *faults.Result // the round to be played again: one that broke a promise, else the slowest to recover
}

func (s *sum) add(r *faults.Result) {
	s.rounds++
	s.times += len(r.Faults)
	s.grants += r.Load.Grants
	s.violations += r.Violations
	s.excused += r.Excused
	s.took += r.Took
	for _, x := range r.Recoveries {
		s.recoveries = append(s.recoveries, x.Took)
	}
	if s.worst == nil || cmp.Or(cmp.Compare(r.Violations, s.worst.Violations), cmp.Compare(slowest(r), slowest(s.worst))) > 0 {
		s.worst = r
	}
}

// slowest is a round's longest recovery.
func slowest(r *faults.Result) (longest time.Duration) {
	for _, x := range r.Recoveries {
		longest = max(longest, x.Took)
	}
	return longest
}

// recovery is the median and the longest of the recoveries.
func (s *sum) recovery() (median, longest string) {
	if len(s.recoveries) == 0 {
		return "–", "–"
	}
	slices.Sort(s.recoveries)
	return short(s.recoveries[len(s.recoveries)/2]), short(s.recoveries[len(s.recoveries)-1])
}

func short(d time.Duration) string {
	if d < time.Second {
		return fmt.Sprintf("%d ms", d.Round(time.Millisecond).Milliseconds())
	}
	return fmt.Sprintf("%.1f s", d.Seconds())
}

// group has the sum of each name, made when it is first asked for.
type group map[string]*sum

func (g group) of(name string) *sum {
	if g[name] == nil {
		g[name] = &sum{}
	}
	return g[name]
}

// page writes docs/data/faults.md.
func page(w io.Writer, all []faults.Result) {
	var whole sum
	var kinds, servers []string
	grounds, tables := group{}, map[string]group{}
	excuses, void := map[string]int{}, 0
	for i := range all {
		switch r := &all[i]; {
		case r.Planted != "":
		case r.Void != "":
			void++
		default:
			if tables[r.Ground] == nil {
				tables[r.Ground] = group{}
				kinds, servers = append(kinds, r.Ground), append(servers, r.Ground+": "+r.Server)
			}
			whole.add(r)
			grounds.of(r.Ground).add(r)
			tables[r.Ground].of(r.Fault).add(r)
			found := map[string]bool{}
			for _, b := range r.Breaches {
				if b.Excused != "" {
					found[b.Excused+" | "+b.Promise] = true
				}
			}
			for k := range found {
				excuses[k]++
			}
		}
	}
	fmt.Fprintf(w, `<!-- Made by `+"`make faults-report` from what `make faults`"+` wrote. -->
# The figures of the faults

[proof.md](../proof.md#faults-on-real-servers) says what a round is, what the judge looks for, and what the columns mean.

**%.1f hours, %d rounds, %d faults, %d grants: %d times a promise was broken that no fault excuses.** %d more rounds do not count,
for want of a fault, or because the ground stayed away.

* %s
`, whole.took.Hours(), whole.rounds, whole.times, whole.grants, whole.violations, void, strings.Join(servers, "\n* "))
	for _, kind := range kinds {
		g := grounds[kind]
		fmt.Fprintf(w, "\n## %s\n\n%d rounds, %d grants: %d violations, %d excused.\n\n<details markdown=\"1\"><summary>Each fault</summary>\n\n"+
			"| fault | rounds | times | grants | violations | excused | recovery, median | worst | again |\n|---|---:|---:|---:|---:|---:|---:|---:|---|\n",
			kind, g.rounds, g.grants, g.violations, g.excused)
		for _, fault := range slices.Sorted(maps.Keys(tables[kind])) {
			s := tables[kind][fault]
			median, longest := s.recovery()
			fmt.Fprintf(w, "| %s | %d | %d | %d | %d | %d | %s | %s | `make faults GROUND=%s FAULT=%q SEED=%d` |\n",
				fault, s.rounds, s.times, s.grants, s.violations, s.excused, median, longest, kind, fault, s.worst.Seed)
		}
		fmt.Fprint(w, "\n</details>\n")
	}
	fmt.Fprint(w, "\n## What faults excuse\n\n| fault | promise | rounds |\n|---|---|---:|\n")
	for _, k := range slices.Sorted(maps.Keys(excuses)) {
		fmt.Fprintf(w, "| %s | %d |\n", k, excuses[k])
	}
	fmt.Fprint(w, "\n## Planted bugs\n\n| bug | promise | beside | seed | caught |\n|---|---|---|---:|---|\n")
	for i := range all {
		if r := &all[i]; r.Planted != "" {
			caught := "no"
			if r.Caught() {
				caught = "yes"
			}
			fmt.Fprintf(w, "| %s | %s | %s on %s | %d | %s |\n", r.Planted, r.Breaks, r.Fault, r.Ground, r.Seed, caught)
		}
	}
}
