package fileengine

import (
	"testing"

	"sema/engine"
)

func TestReleaseHandsToTheHeadOfTheQueueInAnotherEngine(t *testing.T) {
	dir := t.TempDir()
	a, b, c := openUser(t, openEngine(t, dir), "x", 1), openUser(t, openEngine(t, dir), "x", 1), openUser(t, openEngine(t, dir), "x", 1)
	held := a.take(t)
	rb, rc := b.ask(true), c.ask(true)
	if got := b.status(t, rb); got != engine.Queued {
		t.Fatalf("first waiter: status %d", got)
	}
	if got := c.status(t, rc); got != engine.Queued {
		t.Fatalf("second waiter: status %d", got)
	}
	if st := c.state(t); len(st.Holders) != 1 || len(st.Waiters) != 2 {
		t.Fatalf("state %+v", st)
	}
	must(t, a.release(held))
	b.granted(t, rb.ID)
	if st := a.state(t); len(st.Holders) != 1 || st.Holders[0].ID != rb.ID.String() || len(st.Waiters) != 1 {
		t.Fatalf("state %+v", st)
	}
	must(t, b.release(rb.ID))
	c.granted(t, rc.ID)
	must(t, c.release(rc.ID))
}

func TestClosedEngineGivesBackWhatItHeld(t *testing.T) {
	dir := t.TempDir()
	a, b := openUser(t, openEngine(t, dir), "x", 1), openUser(t, openEngine(t, dir), "x", 1)
	a.take(t)
	r := b.ask(true)
	if got := b.status(t, r); got != engine.Queued {
		t.Fatalf("status %d", got)
	}
	must(t, a.engine.Close())
	b.granted(t, r.ID)
}
