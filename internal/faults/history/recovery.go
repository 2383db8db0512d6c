package history

import (
	"cmp"
	"slices"
	"time"
)

// Recoveries is, for each window by its index, how long after its end all
// semaphores that it left waiters in had granted again to those whom the fault
// hit: the longest of them. Windows that left no waiters are not in it. Time in
// which others certainly hold what the waiters want does not count.
func (r *Round) Recoveries() map[int]time.Duration {
	j, all := newJudge(r), map[int]time.Duration{}
	for i := range r.Windows {
		for sem := range r.Semaphores {
			if d, ok := j.recovery(&r.Windows[i], sem); ok {
				all[i] = max(all[i], d)
			}
		}
	}
	return all
}

func (j *judge) recovery(w *Window, sem int) (d time.Duration, ok bool) {
	heaviest, first := 0, int64(never)
	all := len(w.Workers) > 0 // what a dead worker holds, all wait for
	for _, a := range j.bySem[sem] {
		if !all && !j.hits(w, a.worker) || a.try {
			continue
		}
		if a.call < w.End && a.end() > w.End && j.gone(a.worker) > w.End {
			heaviest = max(heaviest, a.weight)
		}
		if a.got > w.End {
			first = min(first, a.got)
		}
	}
	if heaviest == 0 || first == never {
		return 0, false
	}
	type edge struct {
		at   int64
		held int
	}
	edges := []edge{{at: first}}
	held := 0
	for _, a := range j.bySem[sem] {
		switch {
		case a.first == 0 || a.last <= w.End || a.first >= first:
		case a.first <= w.End:
			held += a.weight
			edges = append(edges, edge{min(a.last, first), -a.weight})
		default:
			edges = append(edges, edge{a.first, a.weight}, edge{min(a.last, first), -a.weight})
		}
	}
	slices.SortFunc(edges, func(a, b edge) int { return cmp.Compare(a.at, b.at) })
	at, limit := w.End, j.leastLimit(sem, w.End, first)
	for _, e := range edges {
		if held+heaviest <= limit {
			d += time.Duration(e.at - at)
		}
		at, held = e.at, held+e.held
	}
	return d, true
}
