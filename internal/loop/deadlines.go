package loop

import (
	"context"
	"time"

	"sema/engine"
)

// Deadlines are contexts of calls. A timer for each call would have the runtime wake a
// thread each time, so calls of the same length share one. The zero value has none
// yet; whoever uses it sees to it that nobody else does meanwhile.
type Deadlines struct {
	all []shared // the lengths are few
}

type shared struct {
	most time.Duration
	end  time.Time
	ctx  context.Context
	stop context.CancelFunc
}

// Within is a context for a call that takes no longer than most, give or take a half.
func (d *Deadlines) Within(now time.Time, most time.Duration) context.Context {
	at := 0
	for at < len(d.all) && d.all[at].most != most {
		at++
	}
	if at == len(d.all) {
		d.all = append(d.all, shared{most: most})
	}
	s := &d.all[at]
	if s.ctx == nil || s.end.Sub(now) < most {
		s.end = now.Add(most + most/2)
		ctx, stop := context.WithDeadline(context.Background(), s.end)
		s.ctx, s.stop = &engine.Timed{Context: ctx}, stop
	}
	return s.ctx
}

// Stop ends the latest context of each length: nobody waits for the calls any more.
func (d *Deadlines) Stop() {
	for _, s := range d.all {
		s.stop()
	}
}
