package history

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

// wakeUp judges that nobody waits beside free weight for longer than until it
// asks again, and a second.
//
// What may be held of a permit is from when it may have been granted, which is
// no earlier than its caller's last question, until its release has returned, or
// a lease after it was last seen. As long as the heaviest of those who wait
// would fit beside all that, somebody has to be served. The time of faults, and
// a lease after each, does not count: until then a permit may be held that
// nobody knows of.
//
// With keys, somebody has to be served if the heaviest of all who wait would fit, and the
// heaviest of some key beside what that key holds.
func (j *judge) wakeUp(sem int) []Breach {
	s := j.Semaphores[sem]
	told := int64(s.Lease/6 + Slack) // so long a grant may take to be known
	type edge struct {
		at             int64
		key            string
		held           int
		weight, waiter int // of the one that waits
	}
	var edges []edge
	waiters := []*acquisition{}
	for _, a := range j.bySem[sem] {
		if a.got != 0 {
			until := max(a.got, a.last) + int64(s.Lease)
			if a.released != 0 && a.releaseErr == "" {
				until = a.released + int64(s.Keep)
			}
			edges = append(edges, edge{at: max(a.call, a.got-told), key: a.key, held: a.weight}, edge{at: until, key: a.key, held: -a.weight})
		}
		if a.queued != 0 {
			until := min(a.end(), j.gone(a.worker))
			if a.got != 0 { // and has not been granted yet
				until = max(a.queued, until-told)
			}
			waiters = append(waiters, a)
			edges = append(edges, edge{at: a.queued, key: a.key, weight: a.weight, waiter: 1}, edge{at: until, key: a.key, weight: a.weight, waiter: -1})
		}
	}
	slices.SortStableFunc(edges, func(a, b edge) int { return cmp.Compare(a.at, b.at) })
	var breaches []Breach
	held, heldOf, waiting, room := 0, map[string]int{}, map[waiter]int{}, int64(0)
	may := s.Lease/6 + time.Second
	for i, e := range edges {
		held += e.held
		heldOf[e.key] += e.held
		if e.waiter != 0 {
			w := waiter{e.key, e.weight}
			if waiting[w] += e.waiter; waiting[w] == 0 {
				delete(waiting, w)
			}
		}
		if i+1 < len(edges) && edges[i+1].at == e.at {
			continue
		}
		heaviest, of := 0, map[string]int{}
		for w := range waiting {
			heaviest, of[w.key] = max(heaviest, w.weight), max(of[w.key], w.weight)
		}
		open := false // some key is not at its cap
		for key, weight := range of {
			most := s.cap(key)
			open = open || key == "" || most == 0 || heldOf[key]+weight <= most
		}
		next := e.at
		if i+1 < len(edges) {
			next = edges[i+1].at
		}
		if open && next != never && held+heaviest <= j.leastLimit(sem, e.at, next) {
			if room == 0 {
				room = e.at
			}
			continue
		}
		if room == 0 {
			continue
		}
		from, to := room, e.at
		room = 0
		if to == never || time.Duration(to-from) <= may {
			continue
		}
		free := time.Duration(to-from) - j.disturbed(0, true, from, to, s.Lease+Slack)
		over := free - may - j.stalledAnywhere(from, to)
		if over <= 0 {
			continue
		}
		text := fmt.Sprintf("nobody is served from %s to %s beside free weight, faults aside %v; there wait", ms(from-j.start), ms(to-j.start), free.Round(time.Millisecond))
		for _, a := range waiters {
			if a.queued <= from && a.end() >= to {
				text += fmt.Sprintf(" %s (weight %d, since %s),", a.name(), a.weight, ms(a.queued-j.start))
			}
		}
		breaches = append(breaches, Breach{Promise: PromiseWakeUp, Semaphore: s.Name, At: from, Over: over, Text: text,
			Excused: j.excuse(from, never/2, func(w *Window) bool { return w.Sleep })})
	}
	return breaches
}

// waiter is one that waits for a weight for its key.
type waiter struct {
	key    string
	weight int
}

// stalledAnywhere is for how long some process stood still between two times.
func (j *judge) stalledAnywhere(from, to int64) time.Duration {
	var spans []span
	for _, s := range j.stalls {
		spans = append(spans, s...)
	}
	return within(spans, from, to)
}
