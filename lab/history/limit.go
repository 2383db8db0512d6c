package history

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"
)

// limit judges that at no instant more is held than the limit. A permit is
// certainly held from the first to the last instant that its holder confirmed.
//
// Of the permits held at one instant one was granted last. That was no earlier
// than any of them was asked for, and the others were held by then. So together
// they fit the limit of that time: a shrunk limit revokes nobody, yet what is
// granted after it must fit. A permit that passes within a process was granted
// earlier than its caller came, by as much as a lost recall leaves.
func (j *judge) limit(sem int) []Breach {
	lease := j.Semaphores[sem].Lease
	return j.atOnce(sem, j.bySem[sem], "the limit is", func(a *acquisition, since, at int64) int {
		return j.greatestLimit(sem, since-int64(lease/3+Slack)-int64(j.stalled(a.worker, since-int64(lease), since)), at)
	})
}

// caps judges the same of each key that shares the semaphore.
func (j *judge) caps(sem int) (breaches []Breach) {
	s := j.Semaphores[sem]
	if s.Keys == 0 {
		return nil
	}
	byKey := map[string][]*acquisition{}
	for _, a := range j.bySem[sem] {
		byKey[a.key] = append(byKey[a.key], a)
	}
	for _, key := range slices.Sorted(maps.Keys(byKey)) {
		if most := s.cap(key); key != "" && most > 0 {
			breaches = append(breaches, j.atOnce(sem, byKey[key], "the cap of "+key+" is", func(*acquisition, int64, int64) int { return most })...)
		}
	}
	for i := range breaches {
		breaches[i].Excused = cmp.Or(breaches[i].Excused, j.capForgotten(sem, breaches[i].At))
	}
	return breaches
}

// capForgotten is a fault before a time by which a server forgot all, if an operator's limit may have been the first that it
// was told of then: that comes without a cap, and stays.
func (j *judge) capForgotten(sem int, at int64) string {
	for i := range j.Windows {
		w := &j.Windows[i]
		if w.Limit && w.Begin <= at && slices.ContainsFunc(j.limits[sem], func(s setting) bool { return s.answer >= w.Begin && s.call <= w.End+int64(Slack) }) {
			return w.Fault
		}
	}
	return ""
}

// atOnce judges some acquisitions of a semaphore by a bound: that for what the last of
// those held at one time was granted, since when all had been asked for.
func (j *judge) atOnce(sem int, all []*acquisition, bound string, of func(last *acquisition, since, at int64) int) []Breach {
	s := j.Semaphores[sem]
	type edge struct {
		at int64
		a  *acquisition
		in bool
	}
	var edges []edge
	for _, a := range all {
		if a.first != 0 {
			edges = append(edges, edge{a.first, a, true}, edge{a.last, a, false})
		}
	}
	slices.SortStableFunc(edges, func(a, b edge) int {
		if c := cmp.Compare(a.at, b.at); c != 0 || a.in == b.in {
			return c
		}
		if a.in { // an instant belongs to those who begin in it and to those who end in it
			return -1
		}
		return 1
	})
	var breaches []Breach
	var held []*acquisition
	for _, e := range edges {
		if !e.in {
			held = slices.DeleteFunc(held, func(a *acquisition) bool { return a == e.a })
			continue
		}
		for _, a := range held {
			if a.slot >= 0 && a.slot == e.a.slot && len(all) == len(j.bySem[sem]) {
				breaches = append(breaches, Breach{
					Promise: PromiseLimit, Semaphore: s.Name, At: e.at, Over: time.Duration(min(a.last, e.a.last) - e.at),
					Text:    fmt.Sprintf("slot %d twice at once: %s (permit %s) and %s (permit %s)", a.slot, a.name(), a.permit, e.a.name(), e.a.permit),
					Excused: j.excuseLimit(e.at, s.Lease),
				})
			}
		}
		held = append(held, e.a)
		weight, since := 0, int64(0)
		for _, a := range held {
			weight += a.weight
			since = max(since, a.call)
		}
		limit := of(e.a, since, e.at)
		if weight <= limit {
			continue
		}
		until := int64(never)
		text := fmt.Sprintf("%d held at once, %s %d:", weight, bound, limit)
		for _, a := range held {
			until = min(until, a.last)
			text += fmt.Sprintf(" %s (weight %d, permit %s, token %d, held %s–%s),", a.name(), a.weight, a.permit, a.token, ms(a.first-j.start), ms(a.last-j.start))
		}
		breaches = append(breaches, Breach{
			Promise: PromiseLimit, Semaphore: s.Name, At: e.at, Over: time.Duration(until - e.at), Text: text,
			Excused: j.excuseLimit(e.at, s.Lease),
		})
	}
	return breaches
}

func (j *judge) excuseLimit(at int64, lease time.Duration) string {
	return j.excuse(at, lease, func(w *Window) bool { return w.Limit || w.Leases != 0 })
}

// greatestLimit is the greatest limit that may have been in force at some time
// between two. A limit may be in force from when it was asked for until a later
// one was acknowledged. A server that forgets may fall back to any earlier one.
func (j *judge) greatestLimit(sem int, from, to int64) int {
	greatest := 0
	j.possibleLimits(sem, from, to, func(limit int) { greatest = max(greatest, limit) })
	return greatest
}

// leastLimit is the least.
func (j *judge) leastLimit(sem int, from, to int64) int {
	least := int(1 << 30)
	j.possibleLimits(sem, from, to, func(limit int) { least = min(least, limit) })
	return least
}

func (j *judge) possibleLimits(sem int, from, to int64, yield func(int)) {
	all := append([]setting{{j.Semaphores[sem].Limit, 0, 0}}, j.limits[sem]...)
	for i, s := range all {
		until := int64(never)
		for _, later := range all[i+1:] {
			if later.answer != never && !j.forgot(later.answer, to) {
				until = min(until, later.answer)
			}
		}
		if s.call <= to && until >= from {
			yield(s.limit)
		}
	}
}

// forgot reports whether a server may have forgotten, between two times, what it
// had acknowledged.
func (j *judge) forgot(from, to int64) bool {
	for _, w := range j.Windows {
		if w.Limit && w.Begin <= to && from <= w.End {
			return true
		}
	}
	return false
}
