//go:build unix

package fileengine

import (
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"sema/internal/fixture/expect"
	"sema/internal/pack"
	"sema/internal/protocol"
)

// shift changes an engine's clocks. Later the returned function lets time pass.
func shift(e *Engine, up, wall time.Duration) (pass func(time.Duration)) {
	var passed atomic.Int64
	e.uptime = func() time.Duration { return uptime() + up + time.Duration(passed.Load()) }
	e.wall = func() time.Time { return time.Now().Add(wall + time.Duration(passed.Load())) }
	return func(d time.Duration) { passed.Add(int64(d)) }
}

// restart simulates that the host was restarted.
func restart(e *Engine, wall time.Duration) (pass func(time.Duration)) {
	return shift(e, 5*time.Second-uptime(), wall)
}

func TestChangesOfTheSystemTimeHaveNoEffect(t *testing.T) {
	dir := t.TempDir()
	a, b := openUser(t, openEngine(t, dir), "x", 1), openUser(t, openEngine(t, dir), "x", 1)
	a.take(t)
	var pass func(time.Duration)
	for _, step := range []time.Duration{time.Hour, -time.Hour} {
		pass = shift(b.engine, 0, step)
		if got := b.status(t, b.ask(false)); got != protocol.Refused {
			t.Errorf("system clock %v: status %v", step, got)
		}
	}
	// Time itself does end leases, and waiters are granted the permits at once.
	r := b.queue(t)
	pass(a.lease)
	b.session.(*session).log.look()
	b.granted(t, r.ID)
}

// A process whose uptime is another, as in a container, ends no lease early. It learns of the
// end of its own permits as early as the others.
func TestAnotherUptime(t *testing.T) {
	for _, up := range []time.Duration{time.Hour, -uptime() / 2} {
		dir := t.TempDir()
		users := []*user{openUser(t, openEngine(t, dir), "x", 1), openUser(t, openEngine(t, dir), "x", 1)}
		shift(users[1].engine, up, 0)
		for i, a := range users {
			b := users[1-i]
			held := a.take(t)
			r := b.queue(t)
			if got := a.status(t, protocol.Request{Kind: protocol.Renew, ID: held, Lease: a.lease}); got != protocol.Granted {
				t.Errorf("uptime %v: renewal: status %v", up, got)
			}
			expect.OK(t, a.release(held))
			for told := false; !told; {
				for _, g := range (<-b.told).Grants {
					told = true
					if g.ID != r.ID || g.Until.After(time.Now().Add(b.lease)) {
						t.Errorf("uptime %v: told %+v at %v", up, g, time.Now())
					}
				}
			}
			expect.OK(t, b.release(r.ID))
		}
	}
}

// The time of a waiting process goes on although the last record has a higher uptime.
func TestAWaiterWithALowerUptime(t *testing.T) {
	dir := t.TempDir()
	a, b := openUser(t, openEngine(t, dir), "x", 1), openUser(t, openEngine(t, dir), "x", 1)
	pass := restart(b.engine, 0)
	held := a.take(t)
	r := b.queue(t)
	a.status(t, protocol.Request{Kind: protocol.Renew, ID: held, Lease: a.lease})
	b.state(t)
	pass(a.lease)
	b.session.(*session).log.look()
	b.granted(t, r.ID)
}

// A message that was read late, or by other clocks, tells of no more than the rest of a lease.
func TestALeaseInAMessage(t *testing.T) {
	a, b := openEngine(t, t.TempDir()), openEngine(t, t.TempDir())
	for _, c := range []struct{ up, wall, late time.Duration }{
		{}, {time.Hour, 0, 0}, {-uptime() / 2, 0, 0}, {time.Minute, time.Minute, time.Minute}, {time.Minute, -time.Hour, time.Minute}, {-uptime() / 2, time.Minute, time.Minute},
	} {
		until := time.Now().Add(time.Hour)
		m := letter{client: "f.1", notified: true, Notification: protocol.Notification{Grants: []protocol.Grant{{Until: until}}}}
		text := pack.Append(nil, func(c *pack.Coder) { m.code(c, a) })
		shift(b, c.up, c.wall)
		got := letter{}
		expect.OK(t, pack.Read(text, func(c *pack.Coder) { got.code(c, b) }))
		if left := got.Grants[0].Until; left.After(until.Add(time.Millisecond - c.late)) {
			t.Errorf("%+v: the lease ends at %v, not %v", c, left, until.Add(-c.late))
		}
	}
}

// A restart of the host ends the permits of all processes; the limit and the last token stay.
func TestRestartOfTheHost(t *testing.T) {
	dir := t.TempDir()
	a := openUser(t, openEngine(t, dir), "x", 1)
	r := a.ask(false)
	reply, err := a.call(r, protocol.Request{Kind: protocol.SetLimit, Limit: 3, Pin: true})
	expect.OK(t, err)
	token := reply.Answers[0].Token
	a.engine.inbox.close()

	b := openUser(t, openEngine(t, dir), "x", 1)
	restart(b.engine, -time.Hour) // wrong until the network sets it
	if st := b.state(t); st.Limit != 3 || !st.Pinned || len(st.Holders) != 0 {
		t.Errorf("state %+v", st)
	}
	reply, err = b.call(b.ask(false))
	expect.OK(t, err)
	if got := reply.Answers[0]; got.Status != protocol.Granted || got.Token <= token {
		t.Errorf("answer %+v, after token %d", got, token)
	}
}

// After a clock went back leases still end, for processes that are all new.
func TestLeasesEndAfterAClockWentBack(t *testing.T) {
	dir := t.TempDir()
	a := openUser(t, openEngine(t, dir), "x", 1)
	a.take(t)
	for passed := time.Duration(0); ; passed += a.lease / 4 {
		b := openUser(t, openEngine(t, dir), "x", 1)
		restart(b.engine, -time.Hour)(passed)
		got := b.status(t, b.ask(false))
		if got == protocol.Granted && passed >= a.lease {
			return
		}
		if got != protocol.Refused || passed > a.lease {
			t.Fatalf("after %v: status %v", passed, got)
		}
	}
}

// After a restart of the host the log of an ended semaphore is removed, unless somebody lives in it.
func TestSweepAfterARestart(t *testing.T) {
	dir := t.TempDir()
	a := openUser(t, openEngine(t, dir), "x", 1)
	a.take(t)
	for _, lives := range []bool{true, false} {
		if !lives {
			a.engine.inbox.close()
		}
		files, err := filepath.Glob(filepath.Join(dir, "*"))
		expect.OK(t, err)
		for _, f := range files {
			old := time.Now().Add(-2 * sweepAge)
			expect.OK(t, os.Chtimes(f, old, old))
		}
		e := openEngine(t, dir)
		restart(e, time.Hour)
		e.created.Store(sweepBatch) // as many files that it looks at all
		e.sweep()
		if _, err := os.Stat(logOf(dir)); (err == nil) != lives {
			t.Errorf("somebody lives in the log: %v; %v", lives, err)
		}
	}
}

// Whatever one of the clocks shows to each process: nobody ends a lease while its holder relies on
// it, and it does end.
func TestNobodyReliesOnAnEndedLease(t *testing.T) {
	var real time.Duration
	for seed := range uint64(300) {
		random := rand.New(rand.NewPCG(seed, 0))
		some := func() time.Duration { return time.Duration(random.Int64N(int64(10 * time.Minute))) }
		jump := func() time.Duration { return 2*some() - 10*time.Minute }
		var step time.Duration // of the system time
		var logs [4]*log
		for i := range logs {
			e := &Engine{uptime: func() time.Duration { return real }, wall: func() time.Time { return time.Unix(1e9, 0).Add(real + step) }}
			if up := jump(); seed%2 == 0 {
				e.uptime = func() time.Duration { return real + up }
			}
			logs[i] = &log{engine: e}
			logs[i].image = newImage(header{Last: logs[0].engine.moment()})
		}
		records := []moment{logs[0].Last}
		read := [4]int{}
		end, until, ended := int64(0), time.Duration(0), 0
		for range 200 {
			real += some() / 10
			if seed%2 == 1 && random.IntN(5) == 0 {
				step += jump()
			}
			i := random.IntN(len(logs))
			l := logs[i]
			if len(records) > read[i] {
				l.Last, l.slack, read[i] = records[len(records)-1], 0, len(records)
			}
			now := l.goOn(l.engine.moment())
			switch random.IntN(4) {
			case 0: // looks
			case 1: // learns of its permit, or writes nothing
				if end > now.At {
					until = max(until, real+time.Until(l.localTime(end)))
				}
			default:
				records = append(records, now)
				l.Last, l.slack, read[i] = now, 0, len(records)
				if now.At >= end {
					ended++
					end, until = now.At+time.Minute.Microseconds(), real+time.Minute
				}
			}
			if now.At >= end && real < until-time.Second {
				t.Fatalf("seed %d: process %d ends a lease after %v, not %v", seed, i, real, until)
			}
		}
		if ended < 10 {
			t.Errorf("seed %d: %d leases have ended", seed, ended)
		}
	}
}
