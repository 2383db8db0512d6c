package dashboard

import (
	"fmt"
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
)

// troubles are why a semaphore needs an operator's attention, the worst first,
// and how much it does so: 0 is not at all.
func (h *Handler) troubles(s watch.Summary) (list []string, rank float64) {
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
		add(5+min(.99, float64(s.Oldest)/float64(bound)/1000), fmt.Sprintf("waits %s, usually under %s", brief(s.Oldest), brief(max(glance.Usual, time.Second))))
	case glance.Waits < enoughWaits && s.Oldest > unusualWait:
		add(5, "waits "+brief(s.Oldest))
	}
	if n := glance.Dying; n > 0 {
		add(4, count(n, "lease")+" about to end")
	}
	if s.Limit > 0 && s.Used > s.Limit {
		add(3, fmt.Sprintf("%d above the limit", s.Used-s.Limit))
	}
	if s.Paused {
		add(2, "paused")
	}
	return list, rank
}
