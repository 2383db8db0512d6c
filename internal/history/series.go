package history

import (
	"math"
	"time"
)

// row has the figures of a semaphore in one or more equal steps. A row of several has no waits.
type row struct {
	at      int64 // the first step, counted from 1970
	n       int32 // the number of steps
	used    int32
	limit   int32
	waiting int32 // callers
	waits   [classes]uint16
}

// alike reports whether two rows have the same figures, and no waits.
func (r *row) alike(other *row) bool {
	return r.used == other.used && r.limit == other.limit && r.waiting == other.waiting && r.waits == other.waits && r.waits == [classes]uint16{}
}

// put adds the figures of a look.
func (s *semaphore) put(fresh row) {
	if n := len(s.rows); n > 0 {
		last := &s.rows[n-1]
		if end := last.at + int64(last.n); fresh.at < end { // another look in the same step
			fresh.at, fresh.used, fresh.waiting = end-1, max(fresh.used, last.used), max(fresh.waiting, last.waiting)
			for class, count := range last.waits {
				fresh.waits[class] = sum(fresh.waits[class], count)
				s.waits[class] -= int(count)
			}
			if last.n--; last.n == 0 {
				s.rows = s.rows[:n-1]
			}
		}
	}
	if n := len(s.rows); n > 0 {
		if last := &s.rows[n-1]; last.at+int64(last.n) == fresh.at && last.alike(&fresh) {
			last.n++
			return
		}
	}
	s.rows = append(s.rows, fresh)
	for class, count := range fresh.waits {
		s.waits[class] += int(count)
	}
}

func sum(a, b uint16) uint16 { return a + min(b, math.MaxUint16-a) }

// Point has the figures of a semaphore in a period. If there were several looks, Limit is
// from the last, and Used and Waiting are the largest.
type Point struct {
	From    time.Time
	Used    int
	Limit   int
	Waiting int   // callers
	Waits   Waits // before the grants that looks saw
}

// Series returns the points of a semaphore from a time on, one for each every. Points begin at
// whole multiples of every since the year 1. There is no point for a time without looks.
func (h *History) Series(name string, from time.Time, every time.Duration) []Point {
	h.lock()
	defer h.mu.Unlock()
	s := h.semaphores[name]
	if s == nil {
		return nil
	}
	var list []Point
	for i := range s.rows {
		r := &s.rows[i]
		for at := max(r.at, from.UnixNano()/int64(h.step)); at < r.at+int64(r.n); at++ {
			start := time.Unix(0, at*int64(h.step)).Truncate(every)
			if n := len(list); n == 0 || !list[n-1].From.Equal(start) {
				list = append(list, Point{From: start})
			}
			p := &list[len(list)-1]
			p.Used, p.Limit, p.Waiting = max(p.Used, int(r.used)), int(r.limit), max(p.Waiting, int(r.waiting))
			for class, count := range r.waits {
				p.Waits[class] += int(count)
			}
		}
	}
	return list
}

// classes is the number of classes of waits.
const classes = 16

// Waits counts waits in classes: under one second, under two, under four, … under nine hours.
// Longer ones are counted among the last.
type Waits [classes]int

// classOf is the class of a wait.
func classOf(wait time.Duration) int {
	n := 0
	for bound := time.Second; wait >= bound && n < classes-1; bound *= 2 {
		n++
	}
	return n
}

// Count is the number of waits.
func (w Waits) Count() int {
	n := 0
	for _, count := range w {
		n += count
	}
	return n
}

// Below returns a time that the quantile q of the waits, 0 … 1, did not reach: the bound of
// its class. It is 0 if there were no waits.
func (w Waits) Below(q float64) time.Duration {
	all, sum := w.Count(), 0
	for class, count := range w {
		sum += count
		if count > 0 && float64(sum) >= q*float64(all) {
			return time.Second << class
		}
	}
	return 0
}
