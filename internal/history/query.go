package history

import (
	"cmp"
	"slices"
	"time"

	"sema/access"
)

// Point has the figures of a semaphore in a period. If there were several looks, Limit is
// from the last, and the other figures are the largest.
type Point struct {
	From    time.Time     `json:"from"`
	Used    int           `json:"used"`
	Limit   int           `json:"limit"`
	Waiting int           `json:"waiting"` // callers
	Auto    bool          `json:"auto"`    // a controller set the limit
	Bad     float64       `json:"bad"`     // the controller's largest bad part of the time held, 0 … 1
	Oldest  time.Duration `json:"oldest"`  // the longest wait of a waiter
	Granted int           `json:"granted"` // the number of grants that looks saw
	Lost    int           `json:"lost"`    // the number of permits that ended and may have been lost: see Ended
	Left    int           `json:"left"`    // the number of waiters that left without a permit in any look: see Left
	Waits   Waits         `json:"waits"`   // the waits before the grants
}

// Every returns a period for the points of Series: a multiple of Options.Step that is at
// least want. If possible it divides a minute, an hour or a day.
func (h *History) Every(want time.Duration) time.Duration {
	step := h.options.Step
	for _, round := range []time.Duration{step, 500 * time.Millisecond, time.Second, 2 * time.Second, 5 * time.Second, 10 * time.Second, 15 * time.Second, 30 * time.Second, time.Minute, 2 * time.Minute, 5 * time.Minute,
		10 * time.Minute, 15 * time.Minute, 30 * time.Minute, time.Hour, 2 * time.Hour, 6 * time.Hour, 12 * time.Hour, 24 * time.Hour} {
		if round >= want && round >= step && round%step == 0 {
			return round
		}
	}
	return (want + step - 1) / step * step
}

// Series returns the points of a semaphore in a period, one for each every, which is at
// least Options.Step. Points begin at whole multiples of every since the year 1. There is no
// point for a time without looks. It fails if the Store fails.
func (h *History) Series(name string, from, to time.Time, every time.Duration) ([]Point, error) {
	every = max(every, h.options.Step)
	blocks, err := h.blocks(name, from.Truncate(every), to)
	var list []Point
	for _, b := range blocks {
		for _, r := range b.rows {
			for at := r.At; at < r.At+r.N; at++ {
				begin := b.from.Add(time.Duration(at) * h.options.Step)
				start := begin.Truncate(every)
				if start.Add(every).Before(from) || begin.After(to) {
					continue
				}
				if n := len(list); n == 0 || !list[n-1].From.Equal(start) {
					list = append(list, Point{From: start})
				}
				list[len(list)-1].add(&r)
			}
		}
	}
	return list, err
}

func (p *Point) add(r *row) {
	p.Used, p.Limit, p.Waiting = max(p.Used, int(r.Used)), int(r.Limit), max(p.Waiting, int(r.Waiting))
	p.Oldest = max(p.Oldest, time.Duration(r.Oldest)*time.Millisecond)
	if r.Bad > 0 {
		p.Auto, p.Bad = true, max(p.Bad, float64(r.Bad-1)/1000)
	}
	p.Granted, p.Lost, p.Left = p.Granted+int(r.Granted), p.Lost+int(r.Lost), p.Left+int(r.Left)
	p.Waits.add(&r.Waits)
}

// Visits returns the visits of a semaphore that overlap a period, in the order of their
// beginning. Gone of a current visit is zero. It fails if the Store fails.
func (h *History) Visits(name string, from, to time.Time) ([]Visit, error) {
	blocks, err := h.blocks(name, from, time.Time{})
	var list []Visit
	for _, b := range blocks {
		for _, v := range b.visits {
			if !v.Gone.Before(from) && !v.From().After(to) {
				list = append(list, v)
			}
		}
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if s := h.semaphores[name]; s != nil {
		for _, v := range s.here {
			if !v.From().After(to) {
				list = append(list, *v)
			}
		}
	}
	slices.SortFunc(list, func(a, b Visit) int { return cmp.Or(a.From().Compare(b.From()), cmp.Compare(a.ID, b.ID)) })
	return once(list), err
}

// sameVisit is the largest difference between two recorded beginnings of one visit.
const sameVisit = 10 * time.Second

// once removes doubled visits, which a Store has if it kept a visit before its end.
func once(list []Visit) []Visit {
	last := map[string]*Visit{}
	for i := range list {
		v := &list[i]
		before := last[v.ID]
		if before == nil || v.From().Sub(before.From()) > sameVisit {
			last[v.ID] = v
			continue
		}
		stays, goes := v, before
		if v.End == Unseen && (before.End != Unseen || before.Gone.After(v.Gone)) {
			stays, goes = before, v
		}
		last[v.ID] = stays
		goes.ID = ""
	}
	return slices.DeleteFunc(list, func(v Visit) bool { return v.ID == "" })
}

// Changes returns the acts of operators on a semaphore and its changes in a period, the
// oldest first. A change that a look found has the What limit, paused, unpaused or removed,
// and no Who. It fails if the Store fails.
func (h *History) Changes(name string, from, to time.Time) ([]access.Record, error) {
	blocks, err := h.blocks(name, from, time.Time{})
	var list []access.Record
	for _, b := range blocks {
		for _, c := range b.changes {
			if !c.Time.Before(from) && !c.Time.After(to) {
				list = append(list, c)
			}
		}
	}
	slices.SortStableFunc(list, func(a, b access.Record) int { return a.Time.Compare(b.Time) })
	return list, err
}

// blocks returns copies of the blocks in a period. A zero to means the present.
func (h *History) blocks(name string, from, to time.Time) ([]block, error) {
	h.mu.Lock()
	var list []block
	began := time.Now() // of the data in memory
	if s := h.semaphores[name]; s != nil && len(s.blocks) > 0 {
		began = s.blocks[0].from
		for _, b := range s.blocks {
			if b.end(h.options.Step).After(from) && (to.IsZero() || !b.from.After(to)) {
				list = append(list, b.clone())
			}
		}
	}
	h.mu.Unlock()
	if h.options.Store == nil {
		return list, nil
	}
	if len(list) > 0 && list[0].from.Before(h.began) { // an earlier process may have begun the block
		if err := h.prependStored(name, &list[0]); err != nil {
			return list, err
		}
	}
	if !from.Before(began) {
		return list, nil
	}
	older, err := h.load(name, from, began)
	return append(older, list...), err
}

// Glance is a summary of a semaphore's history in memory.
type Glance struct {
	// Dying is how many holders have not renewed for two thirds of their lease.
	Dying int

	// Usual is a duration that nineteen of twenty waits in memory did not reach. Waits is
	// the number of waits. Both may be a minute old.
	Usual time.Duration
	Waits int
}

// Glance summarizes a semaphore's history in memory.
func (h *History) Glance(name string) Glance {
	h.mu.Lock()
	defer h.mu.Unlock()
	s := h.semaphores[name]
	if s == nil {
		return Glance{}
	}
	if now := time.Now(); now.Sub(s.usualAt) > time.Minute {
		s.usual, s.usualAt = Waits{}, now
		for _, b := range s.blocks {
			for i := range b.rows {
				s.usual.add(&b.rows[i].Waits)
			}
		}
	}
	_, usual := s.usual.Bounds(.95)
	return Glance{Dying: s.dying, Usual: usual, Waits: s.usual.Count()}
}

// Found is a visit with its semaphore.
type Found struct {
	Semaphore string
	Visit
}

// Find returns the visits in memory, of all semaphores, for which match is true, at most most
// of them. Current visits come first, then the others, the latest end first.
func (h *History) Find(most int, match func(semaphore string, v *Visit) bool) []Found {
	var here, gone []Found
	h.mu.Lock()
	for name, s := range h.semaphores {
		for _, v := range s.here {
			if match(name, v) {
				here = append(here, Found{name, *v})
			}
		}
		for _, b := range s.blocks {
			for i := range b.visits {
				if match(name, &b.visits[i]) {
					gone = append(gone, Found{name, b.visits[i]})
				}
			}
		}
	}
	h.mu.Unlock()
	slices.SortFunc(here, func(a, b Found) int {
		return cmp.Or(cmp.Compare(a.Semaphore, b.Semaphore), a.From().Compare(b.From()))
	})
	slices.SortFunc(gone, func(a, b Found) int { return b.Gone.Compare(a.Gone) })
	here = append(here, gone...)
	return here[:min(most, len(here))]
}

// Here calls f with each current visit in its state at the last look. The History's lock is
// held meanwhile, and f must not keep the visit.
func (h *History) Here(f func(semaphore string, v *Visit)) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for name, s := range h.semaphores {
		for _, v := range s.here {
			f(name, v)
		}
	}
}
