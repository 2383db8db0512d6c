package dashboard

import (
	"fmt"
	"math/bits"
	"time"

	"sema/internal/view"
	"sema/watch"
)

const (
	// longWait is shorter than any wait that needs attention, and unusualWait than one
	// at a semaphore whose usual waits are not known.
	longWait    = 10 * time.Second
	unusualWait = time.Minute

	// usualTimes is how many times its usual a wait is when it needs attention.
	usualTimes = 3

	// enoughWaits is how many waits say what is usual.
	enoughWaits = 20

	// A trouble of this rank, or a higher one, needs attention.
	attention = 2
)

// troubles are why a semaphore needs an operator's attention beside its state, and its class.
func (h *Handler) troubles(s watch.Summary) (list []string, class string) {
	list, rank := h.rank(s)
	switch {
	case rank >= 6 || s.Used > s.Limit && s.Observed == nil:
		class = "bad"
	case rank >= attention:
		class = "warn"
	}
	return list, class
}

// rank says in which order semaphores come that need attention, then those where callers wait, then others
// in use. The steps between numbers of waiters are large, so that rows stay where they are.
func (h *Handler) rank(s watch.Summary) (list []string, rank float64) {
	switch {
	case s.Waiting > 0:
		rank = 1 + float64(bits.Len(uint(s.Waiting)))/64
	case s.Used > 0:
		rank = .5
	}
	add := func(of float64, text string) {
		list = append(list, text)
		rank = max(rank, of)
	}
	glance := h.history.Glance(s.Name)
	if s.Err != nil {
		add(6, "cannot be read: "+view.Trouble(h.options.Engine, s.Err))
	}
	switch bound := max(longWait, usualTimes*glance.Usual); {
	case glance.Waits >= enoughWaits && s.Oldest > bound:
		add(5+min(.99, float64(s.Oldest)/float64(bound)/1000), fmt.Sprintf("waits %s, usually under %s", view.Brief(s.Oldest), view.Brief(max(glance.Usual, time.Second))))
	case glance.Waits < enoughWaits && s.Oldest > unusualWait:
		add(5, "waits "+view.Brief(s.Oldest))
	}
	if n := glance.Dying; n > 0 {
		add(4, view.Count(n, "lease")+" about to end")
	}
	switch {
	case s.Limit > 0 && s.Used > s.Limit && s.Observed == nil:
		rank = max(rank, 3)
	case s.Paused:
		rank = max(rank, attention)
	}
	return list, rank
}
