package adapt

import (
	"context"
	"time"

	"sema/engine"
	"sema/internal/protocol"
)

// wordEvery is how often the engine is told what has not changed: it forgets it after
// a minute.
const wordEvery = 20 * time.Second

// Host is the semaphore whose limit is found, as its controller needs it.
type Host struct {
	// Lead waits until this process is the one that decides. The context ends when it is
	// not any more; release lets another one decide.
	Lead func(context.Context) (while context.Context, release func(), err error)

	Reports func(context.Context) (protocol.Reports, error)                   // how holds have gone
	Set     func(ctx context.Context, limit int, word engine.Auto) (set bool) // an operator's limit wins
	Changed func(from int, d Decision)
}

// Run decides whenever this process is the one that does, until ctx ends.
func (h Host) Run(ctx context.Context, least, most int) {
	for ctx.Err() == nil {
		while, release, err := h.Lead(ctx)
		if err != nil {
			wait(ctx, Window)
			continue
		}
		h.decide(while, least, most)
		release()
	}
}

// wait waits for d, or until ctx ends.
func wait(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}

// decide looks once in each window, until ctx ends. A decision that the engine has already is
// not told again, but before the engine forgets it.
func (h Host) decide(ctx context.Context, least, most int) {
	c, began := Controller{Min: least, Max: most}, time.Now()
	known, said := engine.Auto{}, time.Time{}
	look := func() {
		within, cancel := context.WithTimeout(ctx, Window)
		defer cancel()
		r, err := h.Reports(within)
		if err != nil || r.Limit == 0 {
			return // a look that failed says nothing
		}
		d := c.Decide(time.Since(began), r.Limit, r.Totals)
		word := engine.Auto{Min: least, Max: most, Bad: int(d.Bad*1000 + 0.5)}
		if r.Pinned || d.Limit == r.Limit && word == known && time.Since(said) < wordEvery || !h.Set(within, d.Limit, word) {
			return
		}
		known, said = word, time.Now()
		if d.Limit != r.Limit {
			h.Changed(r.Limit, d)
		}
	}
	for ; ctx.Err() == nil; wait(ctx, Window) {
		look()
	}
}
