package loop

import (
	"context"
	"time"

	"sema/internal/protocol"
)

// Deadlines makes contexts for calls. Calls with the same time limit share a context,
// because each timer may make the runtime wake a thread. The zero value is ready for use.
// Its methods are not safe for concurrent use.
type Deadlines struct {
	all []shared // there are few different time limits
}

type shared struct {
	most time.Duration
	end  time.Time
	ctx  context.Context
	stop context.CancelFunc
}

// Within returns a context for a call. It ends after most to one and a half times most.
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
		s.ctx, s.stop = &protocol.Timed{Context: ctx}, stop
	}
	return s.ctx
}

// Stop ends the latest context of each time limit.
func (d *Deadlines) Stop() {
	for _, s := range d.all {
		s.stop()
	}
}
