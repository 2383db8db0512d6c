package watch

import "time"

// Sample is how a semaphore was at one moment.
type Sample struct {
	Time    time.Time
	Used    int
	Limit   int
	Waiting int
}

// history keeps the last samples of a semaphore, one for each of
// Options.Rounds at most.
type history struct {
	samples []Sample // a ring once it is full
	next    int      // where the next one goes then
}

func (h *history) add(now time.Time, o Options, s Summary) {
	most := max(2, int(o.History/o.Rounds))
	last := h.next - 1
	if last < 0 {
		last = len(h.samples) - 1
	}
	sample := Sample{Time: now, Used: s.Used, Limit: s.Limit, Waiting: s.Waiting}
	switch {
	// Rounds are never closer than this, give or take.
	case last >= 0 && now.Sub(h.samples[last].Time) < o.Rounds*9/10:
	case len(h.samples) < most:
		h.samples = append(h.samples, sample)
		h.next = len(h.samples) % most
	default:
		h.samples[h.next] = sample
		h.next = (h.next + 1) % most
	}
}

// list is the samples, the oldest first, that are not older than since.
func (h *history) list(since time.Time) []Sample {
	samples := make([]Sample, 0, len(h.samples))
	for i := range h.samples {
		at := i
		if h.next < len(h.samples) {
			at = (h.next + i) % len(h.samples)
		}
		if !h.samples[at].Time.Before(since) {
			samples = append(samples, h.samples[at])
		}
	}
	return samples
}

// History is how a semaphore was lately: samples about Options.Rounds apart,
// the oldest first, of the last Options.History. There are samples only of
// the time in which somebody looked: see Query.History.
func (w *Watcher) History(name string) []Sample {
	w.mu.Lock()
	defer w.mu.Unlock()
	s := w.semaphores[name]
	if s == nil {
		return nil
	}
	return s.history.list(time.Now().Add(-w.options.History))
}
