package history

import "time"

// waitBounds is the number of classes of waits.
const waitBounds = 12

// Waits counts waits in classes: under one second, under two, under four, … under 1024
// seconds, and longer.
type Waits [waitBounds]int

// boundOf is the class of a wait.
func boundOf(wait time.Duration) int {
	n := 0
	for bound := time.Second; wait >= bound && n < waitBounds-1; bound *= 2 {
		n++
	}
	return n
}

// Count is the number of waits.
func (w Waits) Count() int {
	n := 0
	for _, of := range w {
		n += of
	}
	return n
}

// NoBound is the upper bound of waits of 1024 s and more.
const NoBound time.Duration = time.Second << (waitBounds - 1)

// Bounds returns the bounds of the class with the quantile q of the waits, 0 … 1. The quantile
// is at least from and less than to: the part q did not reach to. Both are 0 if there were no
// waits.
func (w Waits) Bounds(q float64) (from, to time.Duration) {
	all, so := w.Count(), 0
	for i, n := range w {
		so += n
		if n > 0 && float64(so) >= q*float64(all) {
			to = time.Second << i
			if i > 0 {
				from = to / 2
			}
			return from, to
		}
	}
	return 0, 0
}

func (w *Waits) add(of *[waitBounds]uint16) {
	for i, n := range of {
		w[i] += int(n)
	}
}
