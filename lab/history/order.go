package history

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

// order judges that who waits is not passed over by those who came later, or not
// for longer than until it asks again: a sixth of the lease.
//
// A is passed over by B, of the same key, if B called after A was known to wait, and has its
// permit while A still waits, at a time when no fault explains it; and, if A is
// granted in the end, B's token is the smaller one, so that B was not only told
// earlier. What counts is the time from
// the first to the last such B: after it nobody passed A, and what it waits for
// is held.
//
// Where no fault and no stall explains it, not one may pass that came later by
// more than a message takes.
func (j *judge) order(sem int) []Breach {
	s := j.Semaphores[sem]
	if s.Unfair || s.Passes > 0 {
		return nil
	}
	var granted []*acquisition
	for _, a := range j.bySem[sem] {
		if a.got != 0 {
			granted = append(granted, a)
		}
	}
	slices.SortFunc(granted, func(a, b *acquisition) int { return cmp.Compare(a.got, b.got) })
	may := s.Lease/6 + Slack
	var breaches []Breach
	for _, a := range j.bySem[sem] {
		if a.queued == 0 {
			continue
		}
		end := min(a.end(), j.gone(a.worker))
		at, _ := slices.BinarySearchFunc(granted, a.queued, func(b *acquisition, t int64) int { return cmp.Compare(b.got, t) })
		var first, last *acquisition
		for ; at < len(granted) && granted[at].got < end; at++ {
			b := granted[at]
			if b.key != a.key || b.call <= a.queued || a.got != 0 && b.token > a.token {
				continue
			}
			forgotten := j.excuse(b.got, s.Lease, func(w *Window) bool { return w.Order }) != ""
			if !forgotten && j.disturbed(a.worker, false, b.got, b.got+1, may+j.Found) > 0 {
				continue
			}
			if first == nil {
				first = b
			}
			last = b
		}
		if first == nil {
			continue
		}
		breach := Breach{
			Promise: PromiseOrder, Semaphore: s.Name, At: first.got,
			Excused: j.reordered(a.queued, first.got, s.Lease),
		}
		if b := j.barged(a, granted, end, may+j.Found); b != nil {
			breach.Over = time.Duration(b.call - a.queued)
			breach.Text = fmt.Sprintf("%s (weight %d) waits from %s to %s, without any fault, and %s, called at %s, is granted before it at %s",
				a.name(), a.weight, ms(a.queued-j.start), ms(end-j.start), b.name(), ms(b.call-j.start), ms(b.got-j.start))
			breaches = append(breaches, breach)
			continue
		}
		passed := time.Duration(last.got-first.got) - j.disturbed(a.worker, false, first.got, last.got, may+j.Found)
		if over := passed - may - j.stalled(a.worker, first.got, last.got); over > 0 {
			breach.Over = over
			breach.Text = fmt.Sprintf("%s (weight %d) waits from %s to %s and is passed over for %v, from %s by %s (called at %s) to %s by %s (called at %s)",
				a.name(), a.weight, ms(a.queued-j.start), ms(end-j.start), passed.Round(time.Millisecond),
				ms(first.got-j.start), first.name(), ms(first.call-j.start), ms(last.got-j.start), last.name(), ms(last.call-j.start))
			breaches = append(breaches, breach)
		}
	}
	return breaches
}

// barged is one that passed A although it came later by more than a message
// takes, if no fault hit anybody meanwhile.
func (j *judge) barged(a *acquisition, granted []*acquisition, end int64, around time.Duration) *acquisition {
	if j.disturbed(0, true, a.queued, end, around) > 0 {
		return nil
	}
	since := a.queued + int64(Slack+j.stalledAnywhere(a.queued, end))
	at, _ := slices.BinarySearchFunc(granted, since, func(b *acquisition, t int64) int { return cmp.Compare(b.got, t) })
	for ; at < len(granted) && granted[at].got < end; at++ {
		if b := granted[at]; b.key == a.key && b.call > since && (a.got == 0 || b.token < a.token) {
			return b
		}
	}
	return nil
}

// gone is when a worker was killed.
func (j *judge) gone(worker int) int64 {
	if p := j.worker[worker]; p != nil && p.Gone != 0 {
		return p.Gone
	}
	return never
}

// reordered is a fault that forgot places in the queue while somebody waited. A
// caller that lost its place stays behind those that asked again sooner.
func (j *judge) reordered(from, to int64, lease time.Duration) string {
	for i := range j.Windows {
		w := &j.Windows[i]
		if w.Begin <= to && (w.Sleep || w.Order && w.End+int64(lease) >= from) {
			return w.Fault
		}
	}
	return ""
}
