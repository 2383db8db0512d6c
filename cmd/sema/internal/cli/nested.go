package cli

import (
	"context"
	"strings"
)

// heldVariable lists the permits under which a command runs, outermost first.
const heldVariable = "SEMA_HELD"

// deadlock refuses a wait that would never end: the permit is held by an outer
// sema that waits for this one. A background command that outlives the outer
// one could be served later, but sema cannot tell the two cases apart.
func (w *watch) deadlock(ctx context.Context) error {
	outer := strings.Fields(w.getenv(heldVariable))
	if len(outer) == 0 || w.flags.noWait {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	st, err := w.sem.State(ctx)
	if err != nil {
		return err
	}
	ours, id := 0, ""
	for _, h := range st.Holders {
		for _, held := range outer {
			if h.ID == held {
				ours, id = ours+h.Weight, held
			}
		}
	}
	if ours == 0 || ours+w.flags.weight <= st.Limit {
		return nil
	}
	return usage("another name for the inner semaphore, or env -u "+heldVariable+" in front of a command that outlives the outer one",
		"%q would wait for itself: this runs under its permit %s, and %d of %d are taken that way", w.name, id, ours, st.Limit)
}
