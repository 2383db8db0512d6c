package fileengine

import (
	"slices"
	"time"
)

// moment is a time of a log, and what two clocks showed then to the process that wrote it.
//
// Processes of one host have no clock in common. The system time is set, the uptime starts again
// with the host, and a container can have an uptime of its own. So each record has its moment, and
// the log's time goes on from the last record by the time on which both clocks agree. No lease ends early
// unless both are wrong at once. If a clock went back, no time has passed; the next record has the
// clocks of its own process, so the log's time never stands still for long.
type moment struct {
	At   int64 // microseconds; never less than in the record before
	Wall int64 // the system time
	Up   int64 // the uptime, without the time in suspend
}

// moment reads the clocks.
func (e *Engine) moment() moment {
	return moment{Wall: e.wall().UnixMicro(), Up: e.uptime().Microseconds()}
}

// least is the smallest time that has passed since m, by which leases end.
func (m moment) least(now moment) int64 { return max(0, min(now.Wall-m.Wall, now.Up-m.Up)) }

// most is the greatest time that has passed since m, by which a process judges its own permits.
func (m moment) most(now moment) int64 { return max(0, now.Wall-m.Wall, now.Up-m.Up) }

// now is the current time of the log.
func (m *image) now(now moment) int64 { return m.Last.At + m.Last.least(now) }

// goOn starts a step, and returns its moment. From it on the time passes by the clocks of this
// process.
func (m *image) goOn(now moment) moment {
	m.slack += m.Last.most(now) - m.Last.least(now)
	now.At = m.now(now)
	m.Last = now
	return now
}

// localTime converts a time of the log to this process's clock. The result may be early. It is
// never later than for any other process.
func (l *log) localTime(t int64) time.Time {
	local := time.Now() // before the other clocks
	return local.Add(time.Duration(t-l.Last.At-l.Last.most(l.engine.moment())-l.slack) * time.Microsecond)
}

// over reports whether the semaphore of a log has ended. After a restart of the host the system
// time alone decides, if nobody lives in the log.
func (e *Engine) over(m image) bool {
	now := e.moment()
	at := m.now(now)
	if now.Up < m.Last.Up && !slices.ContainsFunc(m.ledger.Clients(), func(client string) bool { return isAlive(e.pipePath(processOf(client))) }) {
		at = max(at, m.Last.At+now.Wall-m.Last.Wall)
	}
	return m.ledger.Over(at)
}
