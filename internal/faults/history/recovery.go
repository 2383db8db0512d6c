package history

import "time"

// Recovery is how long after the end of a fault each semaphore that it left
// waiters in had granted again, to those whom the fault hit: the longest of
// them. ok is false if nobody waited.
func (r *Round) Recovery(w Window) (longest time.Duration, ok bool) {
	return newJudge(r).recovery(w)
}

// Recoveries is Recovery for all windows, and whether there was one.
func (r *Round) Recoveries() map[int]time.Duration {
	j, all := newJudge(r), map[int]time.Duration{}
	for i, w := range r.Windows {
		if d, ok := j.recovery(w); ok {
			all[i] = d
		}
	}
	return all
}

func (j *judge) recovery(w Window) (longest time.Duration, ok bool) {
	for sem := range j.Semaphores {
		waited, first := false, int64(never)
		for _, a := range j.bySem[sem] {
			if !j.hits(&w, a.worker) || a.try {
				continue
			}
			waited = waited || a.call < w.End && a.end() > w.End && j.gone(a.worker) > w.End
			if a.got > w.End {
				first = min(first, a.got)
			}
		}
		if waited && first != never {
			longest, ok = max(longest, time.Duration(first-w.End)), true
		}
	}
	return longest, ok
}
