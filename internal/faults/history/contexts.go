package history

import (
	"fmt"
	"time"
)

// contexts judges that every call returns in time, whatever happens: an
// acquisition when its context ends, Release and Close within their bounds.
func (j *judge) contexts() []Breach {
	var breaches []Breach
	late := func(worker, sem int, what string, from, to int64, may time.Duration) {
		if to == 0 || time.Duration(to-from) <= may {
			return
		}
		stalls := j.stalled(worker, from, to) + j.stopped(worker, from, to)
		if over := time.Duration(to-from) - may - stalls; over > 0 {
			breaches = append(breaches, Breach{
				Promise: PromiseContexts, Semaphore: j.Semaphores[sem].Name, At: from, Over: over,
				Text: fmt.Sprintf("%s returns at %s, %v after %s; it may take %v, and stalls took %v", what, ms(to-j.start),
					time.Duration(to-from).Round(time.Millisecond), ms(from-j.start), may, stalls.Round(time.Millisecond)),
			})
		}
	}
	for _, a := range j.all {
		lease := j.Semaphores[a.sem].Lease
		if a.until != 0 && a.end() != never {
			late(a.worker, a.sem, a.name()+", whose context ended,", max(a.until, a.call), a.end(), Slack)
		}
		if a.release != 0 {
			// The engine has a sixth of the lease to confirm, give or take a half.
			late(a.worker, a.sem, "Release of "+a.name(), a.release, a.released, lease/4+2*Slack)
		}
	}
	for _, e := range j.closed {
		lease := j.Semaphores[e.Sem].Lease
		late(e.Worker, e.Sem, fmt.Sprintf("Close of worker %d", e.Worker), j.closing[[2]int{e.Worker, e.Sem}], e.At, lease+2*Slack)
	}
	return breaches
}

// stopped is for how long a worker itself was disturbed, as by SIGSTOP.
func (j *judge) stopped(worker int, from, to int64) time.Duration {
	var spans []span
	for _, w := range j.Windows {
		for _, id := range w.Workers {
			if id == worker {
				spans = append(spans, span{w.Begin, w.End + int64(Slack)})
			}
		}
	}
	return within(spans, from, to)
}

// goroutines judges that a worker has as many goroutines after Close as before.
func (j *judge) goroutines() []Breach {
	var breaches []Breach
	for _, w := range j.Workers {
		before, ok := j.began[w.ID]
		after, gone := j.ended[w.ID]
		if ok && gone && after.Count > before.Count {
			breaches = append(breaches, Breach{
				Promise: PromiseLeak, At: after.At,
				Text: fmt.Sprintf("worker %d had %d goroutines at the beginning, and has %d after Close: %s", w.ID, before.Count, after.Count, after.Text),
			})
		}
	}
	return breaches
}
