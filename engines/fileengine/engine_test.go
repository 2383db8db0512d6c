package fileengine

import (
	"testing"
	"time"

	"sema/internal/fixture/expect"
	"sema/internal/protocol"
)

func TestClosedEngineGivesBackWhatItHeld(t *testing.T) {
	dir := t.TempDir()
	a, b := openUser(t, openEngine(t, dir), "x", 1), openUser(t, openEngine(t, dir), "x", 1)
	a.take(t)
	r := b.queue(t)
	expect.OK(t, a.engine.Close())
	b.granted(t, r.ID)
}

// A log that is closed ends what it watches at once, also while its last step waits for another process.
func TestAClosedLogWatchesNobody(t *testing.T) {
	dir := t.TempDir()
	a, b := openUser(t, openEngine(t, dir), "x", 1), openUser(t, openEngine(t, dir), "x", 1)
	a.take(t)
	b.queue(t)
	l := b.session.(*session).log
	watched := func() int {
		l.watching.Lock()
		defer l.watching.Unlock()
		return len(l.watches)
	}
	if n := watched(); n != 1 {
		t.Fatalf("who waits watches %d processes", n)
	}
	l.stepLock <- struct{}{}
	defer func() { <-l.stepLock }()
	expect.OK(t, b.session.Close())
	expect.Until(t, "the end of the watch", func() bool { return watched() == 0 })
}

// read returns how far a user's process has read the log.
func (u *user) read() int64 {
	l := u.session.(*session).log
	l.stepLock <- struct{}{}
	defer func() { <-l.stepLock }()
	return l.end
}

// A hand-off wakes the next two waiters, and no others.
func TestHandOffWakesTwoWaiters(t *testing.T) {
	dir := t.TempDir()
	a := openUser(t, openEngine(t, dir), "x", 1)
	held := a.take(t)
	queue, tickets := queueUp(t, dir, 5)
	var before []int64
	for _, u := range queue {
		before = append(before, u.read())
	}
	expect.OK(t, a.release(held))
	queue[0].granted(t, tickets[0])
	expect.Until(t, "a look of the new head", func() bool { return queue[1].read() > before[1] })
	for i, u := range queue {
		if got := u.read(); i != 1 && got != before[i] {
			t.Errorf("waiter %d read from %d to %d", i, before[i], got)
		}
	}
}

// A grant carries the token, the slot and the end of the lease to another process.
func TestGrantTellsTokenSlotAndLease(t *testing.T) {
	dir := t.TempDir()
	a, b := openUser(t, openEngine(t, dir), "x", 3), openUser(t, openEngine(t, dir), "x", 3)
	r := a.ask(false)
	r.ID.Weight = 3
	reply, err := a.call(r)
	expect.OK(t, err)
	r2 := b.ask(true)
	r2.ID.Slot = true
	b.wants(t, r2, protocol.Queued)
	expect.OK(t, a.release(r.ID))
	n := <-b.told
	if len(n.Grants) != 1 {
		t.Fatalf("told %+v", n)
	}
	g := n.Grants[0]
	if g.Token <= reply.Answers[0].Token || g.Slot != 0 || g.Until.Before(time.Now().Add(b.lease/2)) || g.Until.After(time.Now().Add(b.lease)) {
		t.Errorf("grant %+v after token %d", g, reply.Answers[0].Token)
	}
}
