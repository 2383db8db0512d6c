package history

import "cmp"

// Holding is one permit that was had.
type Holding struct {
	Key               string
	Call, From, Until int64 // when it was asked for, had, and about to be released
}

// Holdings are the permits of a semaphore, by call. What was not released was held to
// the last event.
func (r *Round) Holdings(sem int) (all []Holding) {
	var last int64
	for _, e := range r.Events {
		last = max(last, e.At)
	}
	for _, a := range newJudge(r).bySem[sem] {
		if a.got != 0 {
			all = append(all, Holding{a.key, a.call, a.got, cmp.Or(a.release, last)})
		}
	}
	return all
}
