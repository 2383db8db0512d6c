package ledger

import (
	"maps"
	"time"

	"sema/engine"
	"sema/internal/protocol"
)

// keepReport is how long what a client or a controller reported is known.
const keepReport = time.Minute

// Reported is what a client has reported, and until when that is known.
type Reported struct {
	protocol.Totals
	End int64
}

// ReportedAuto is what a controller has said, and until when that is known.
type ReportedAuto struct {
	engine.Auto
	End int64
}

// report takes in how the holds of the step's caller have gone. Totals only grow, so
// the greater of each is the later.
func (l *Ledger) report(now int64, t protocol.Totals) protocol.Answer {
	if l.limit == 0 {
		return protocol.Answer{Status: protocol.Gone}
	}
	maps.DeleteFunc(l.reports, func(_ string, r Reported) bool { return r.End <= now })
	if l.reports == nil {
		l.reports = map[string]Reported{}
	}
	was := l.reports[l.caller]
	l.reports[l.caller] = Reported{
		Totals: protocol.Totals{Good: max(was.Good, t.Good), Bad: max(was.Bad, t.Bad), Waited: max(was.Waited, t.Waited)},
		End:    now + keepReport.Microseconds(),
	}
	return protocol.Answer{Status: protocol.Done}
}

// autoLimit stores the limit that a controller found. It does not keep an idle
// semaphore known.
func (l *Ledger) autoLimit(now int64, limit int, a engine.Auto) protocol.Answer {
	switch {
	case l.limit == 0:
		return protocol.Answer{Status: protocol.Gone}
	case l.pinned:
		return protocol.Answer{Status: protocol.Pinned}
	}
	l.limited = l.limited || l.limit != limit
	l.limit = limit
	l.auto = ReportedAuto{a, now + keepReport.Microseconds()}
	return protocol.Answer{Status: protocol.Done}
}

// Reports is what has been reported within keepReport, and the limit as written.
func (l *Ledger) Reports(now int64) protocol.Reports {
	all := protocol.Reports{Limit: l.limit, Pinned: l.pinned, Totals: map[string]protocol.Totals{}}
	for client, r := range l.reports {
		if r.End > now {
			all.Totals[client] = r.Totals
		}
	}
	if l.auto.End > now {
		all.Auto = l.auto.Auto
	}
	return all
}
