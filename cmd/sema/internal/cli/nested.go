package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"sema"
	"sema/internal/view"
)

// heldVariable lists the permits under which a command runs, outermost first.
const heldVariable = "SEMA_HELD"

// inVain refuses a wait that would never end, before anything is stored. The weight is above
// the limit that we would be the first to store, or an outer sema holds the permit and
// waits for this command. A background command that outlives the outer
// one could be served later, but sema cannot tell the two cases apart.
func (w *watch) inVain(ctx context.Context, e sema.Engine) error {
	weight, limit := w.flags.weight, w.flags.limit
	outer := strings.Fields(w.getenv(heldVariable))
	if w.flags.noWait {
		outer = nil
	}
	if weight <= limit && len(outer) == 0 {
		return nil
	}
	return operate(ctx, e, "acquire", w.name, func(ctx context.Context, o *sema.Operator) error {
		st, err := o.State(ctx)
		switch {
		case errors.Is(err, sema.ErrNotFound) && weight > limit:
			return usage(fmt.Sprintf("-n %d", weight), "weight %d is above the limit %d", weight, limit)
		case errors.Is(err, sema.ErrNotFound):
			return nil
		case err != nil || st.Observed != nil: // nobody waits for a limit that is only watched
			return err
		}
		if w.flags.limitGiven && w.flags.conflict == "newest" && !st.Pinned {
			st.Limit = limit // asking sets it
		}
		const try = "another name for the inner semaphore, or env -u " + heldVariable + " in front of a command that outlives the outer one"
		for _, b := range view.LookAt(st).Bounds(w.flags.wish()) {
			ours, id := 0, ""
			for _, h := range st.Holders {
				if n := b.Part(h.Key, h.Takes, h.Weight); n > 0 && slices.Contains(outer, h.ID) {
					ours, id = ours+n, h.ID
				}
			}
			if ours > 0 && ours+b.Wants > b.Limit && b.Wants <= b.Limit {
				return usage(try, "%q would wait for itself: this runs under its permit %s, and %d of %d%s are taken that way", w.name, id, ours, b.Limit, b.Of)
			}
		}
		return nil
	})
}
