package history

import (
	"fmt"
	"time"
)

// patience is how long a first attempt that does not reach the engine lasts.
const patience = 3 * time.Second

// told judges that acquisitions end with no error but those that are documented,
// and that no permit is lost, or called lost, without a fault.
func (j *judge) told() []Breach {
	var breaches []Breach
	for _, a := range j.all {
		s := j.Semaphores[a.sem]
		if a.fail != 0 {
			if why := j.wrongError(a); why != "" {
				breaches = append(breaches, Breach{
					Promise: PromiseTold, Semaphore: s.Name, At: a.fail,
					Text: fmt.Sprintf("%s, called at %s, ended at %s with %q: %s", a.name(), ms(a.call-j.start), ms(a.fail-j.start), a.text, why),
				})
			}
		}
		lost := a.lost
		if lost == 0 && a.releaseErr == ErrLost {
			lost = a.released
		}
		if lost == 0 || a.got == 0 {
			continue
		}
		lastLease := lost - int64(s.Lease)
		if j.disturbed(a.worker, false, lastLease, lost, Slack) > 0 || j.stalled(a.worker, lastLease, lost) > s.Lease/4 {
			continue
		}
		breaches = append(breaches, Breach{
			Promise: PromiseTold, Semaphore: s.Name, At: lost,
			Text: fmt.Sprintf("%s, permit %s, is lost at %s, %s after it was got; no fault hit it for a lease: %q", a.name(), a.permit, ms(lost-j.start), ms(lost-a.got), a.text),
		})
	}
	return breaches
}

// wrongError says what is wrong with the error that an acquisition ended with.
func (j *judge) wrongError(a *acquisition) string {
	s := j.Semaphores[a.sem]
	closing := j.closing[[2]int{a.worker, a.sem}]
	// What is called an engine's failure needs a fault that explains it.
	longest := j.longestFault(a.worker, a.call-int64(s.Lease), a.fail, s.Lease/6+Slack)
	switch a.err {
	case ErrContext:
		if a.until == 0 {
			return "its context did not end"
		}
		if a.fail < a.until {
			return "its context had not ended yet"
		}
	case ErrRefused:
		if !a.try {
			return "it was to wait"
		}
	case ErrClosed:
		if closing == 0 || closing > a.fail {
			return "nothing was closed"
		}
	case ErrWeight:
		if a.weight <= j.leastLimit(a.sem, a.call, a.fail) {
			return "it weighs no more than the limit"
		}
	case ErrEngine:
		if longest == 0 {
			return "no fault hit it"
		}
	case ErrTemporary:
		switch {
		case j.stalled(a.worker, a.fail-int64(s.Lease), a.fail) > s.Lease/4:
		case a.queued != 0 && longest < s.Lease-s.Lease/6:
			// The lease counts from the last question that was answered: a sixth
			// of a lease before the outage, it may be.
			return fmt.Sprintf("it waited, and the longest outage was %v, less than a lease", longest.Round(time.Millisecond))
		case longest+s.Lease/6+Slack < min(patience, s.Lease):
			return fmt.Sprintf("the longest outage was %v", longest.Round(time.Millisecond))
		}
	default:
		return "no such error is documented"
	}
	return ""
}

// longestFault is the longest time without a break, between two, in which faults
// hit a worker, each extended by so much.
func (j *judge) longestFault(worker int, from, to int64, extended time.Duration) time.Duration {
	var longest time.Duration
	for i := range j.Windows {
		w := &j.Windows[i]
		if !j.hits(w, worker) {
			continue
		}
		// Another one that follows at once makes one outage of both.
		end := w.End + int64(extended)
		for again := true; again; {
			again = false
			for k := range j.Windows {
				n := &j.Windows[k]
				if j.hits(n, worker) && n.Begin <= end && n.End+int64(extended) > end {
					end, again = n.End+int64(extended), true
				}
			}
		}
		if a, b := max(w.Begin, from), min(end, to); b > a {
			longest = max(longest, time.Duration(b-a))
		}
	}
	return longest
}
