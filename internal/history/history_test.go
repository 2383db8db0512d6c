package history_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"sema"
	"sema/access"
	"sema/engine"
	"sema/engines/memengine"
	"sema/internal/fixture/expect"
	"sema/internal/history"
	"sema/internal/protocol"
	"sema/watch"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// bubble runs f in virtual time, with a history that records all the time.
func bubble(t *testing.T, o history.Options, f func(t *testing.T, e protocol.Engine, h *history.History)) {
	synctest.Test(t, func(t *testing.T) {
		e := memengine.New()
		w, err := watch.New(e, nil)
		expect.OK(t, err)
		o.Always = true
		h, err := history.New(w, &o)
		expect.OK(t, err)
		defer func() {
			h.Close()
			w.Close()
			expect.OK(t, e.Close())
		}()
		f(t, e, h)
	})
}

func semaphore(t *testing.T, e protocol.Engine, label string) *sema.Semaphore {
	t.Helper()
	s, err := sema.New(e, "x", 2, &sema.Options{Label: label, Lease: 30 * time.Second})
	expect.OK(t, err)
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// The history has the holders of a semaphore, the waiters, and those who left the queue, with
// their times, for an hour.
func TestWhoWasThereWhen(t *testing.T) {
	bubble(t, history.Options{}, func(t *testing.T, e protocol.Engine, h *history.History) {
		begin := time.Now()
		at := func(d time.Duration) { time.Sleep(time.Until(begin.Add(d))) }
		first, second, third := semaphore(t, e, "first"), semaphore(t, e, "second"), semaphore(t, e, "third")
		p, err := first.Acquire(t.Context(), sema.Weight(2))
		expect.OK(t, err)
		at(time.Minute)
		done := make(chan *sema.Permit)
		go func() {
			p, err := second.Acquire(context.Background())
			expect.OK(t, err)
			done <- p
		}()
		at(2 * time.Minute)
		impatient, giveUp := context.WithTimeout(t.Context(), 5*time.Minute)
		defer giveUp()
		go func() { _, _ = third.Acquire(impatient, sema.Weight(2)); done <- nil }()
		at(4*time.Minute + 3*time.Second)
		expect.OK(t, p.Release())
		q := <-done
		<-done
		h.Act(access.Record{Time: time.Now(), Who: "olga", What: "revoke", Name: "x", Permit: q.ID(), Result: "done"})
		at(10 * time.Minute)
		expect.OK(t, q.Release())
		at(11 * time.Minute)

		visits, err := h.Visits("x", begin, time.Now())
		expect.OK(t, err)
		if len(visits) != 3 {
			t.Fatalf("%+v", visits)
		}
		near := func(what string, got time.Time, want time.Duration, within time.Duration) {
			t.Helper()
			if off := got.Sub(begin.Add(want)); off < -within || off > within {
				t.Errorf("%s: at %v, not %v", what, got.Sub(begin), want)
			}
		}
		a, b, c := visits[0], visits[1], visits[2]
		if a.Client.Label != "first" || a.Weight != 2 || !a.Came.IsZero() || a.End != history.Released || a.ID != p.ID() || a.Token != p.Token() {
			t.Errorf("%+v", a)
		}
		near("first granted", a.Granted, 0, 0)
		near("first gone", a.Gone, 4*time.Minute, 10*time.Second)
		if b.Client.Label != "second" || b.End != history.Released {
			t.Errorf("%+v", b)
		}
		near("second came", b.Came, time.Minute, 0)
		near("second granted", b.Granted, 4*time.Minute+3*time.Second, 0)
		near("second gone", b.Gone, 10*time.Minute, 5*time.Second)
		if c.Client.Label != "third" || c.End != history.Left || !c.Granted.IsZero() {
			t.Errorf("%+v", c)
		}
		near("third gone", c.Gone, 7*time.Minute, 5*time.Second)
		if visits, _ := h.Visits("x", begin.Add(8*time.Minute), begin.Add(9*time.Minute)); len(visits) != 1 || visits[0].ID != b.ID {
			t.Errorf("at that time: %+v", visits)
		}
		if visits, _ := h.Visits("y", begin, time.Now()); visits != nil {
			t.Errorf("%+v", visits)
		}

		points, err := h.Series("x", begin, time.Now(), time.Minute)
		expect.OK(t, err)
		for _, p := range points {
			switch p.From {
			case begin:
				if p.Used != 2 || p.Limit != 2 || p.Waiting != 0 || p.Granted != 1 {
					t.Errorf("%+v", p)
				}
			case begin.Add(3 * time.Minute):
				if p.Used != 2 || p.Waiting != 2 || p.Oldest < 2*time.Minute || p.Oldest > 3*time.Minute || p.Granted != 0 {
					t.Errorf("%+v", p)
				}
			case begin.Add(4 * time.Minute):
				if _, to := p.Waits.Bounds(.5); p.Granted != 1 || to != 256*time.Second {
					t.Errorf("%+v %v", p, to)
				}
			case begin.Add(7 * time.Minute):
				if p.Left != 1 || p.Used != 1 {
					t.Errorf("%+v", p)
				}
			}
		}
		if len(points) < 10 || len(points) > 12 {
			t.Errorf("%d points", len(points))
		}
		changes, err := h.Changes("x", begin, time.Now())
		expect.OK(t, err)
		found := false
		for _, c := range changes {
			found = found || c.Who == "olga" && c.What == "revoke" && c.Permit == q.ID()
		}
		if !found {
			t.Errorf("%+v", changes)
		}
		if glance := h.Glance("x"); glance.Waits != 2 || glance.Usual != 256*time.Second || glance.Dying != 0 {
			t.Errorf("%+v", glance)
		}
		expect.OK(t, first.Close())
		time.Sleep(2 * time.Hour)
		if points, _ := h.Series("x", begin, begin.Add(30*time.Minute), time.Minute); len(points) != 0 {
			t.Errorf("%d points were never dropped", len(points))
		}
	})
}

// Find finds visits by the caller's id in all semaphores, during the visit and afterwards. The
// history has the key of each permit, and the rules that operators set for keys.
func TestWhoseItWas(t *testing.T) {
	bubble(t, history.Options{}, func(t *testing.T, e protocol.Engine, h *history.History) {
		begin := time.Now()
		s := semaphore(t, e, "job")
		p, err := s.Acquire(t.Context(), sema.For("acme"), sema.Weight(2))
		expect.OK(t, err)
		done := make(chan struct{})
		go func() {
			defer close(done)
			p, err := s.Acquire(context.Background(), sema.For("beta", "a/b"))
			expect.OK(t, err)
			expect.OK(t, p.Release())
		}()
		time.Sleep(time.Minute)
		expect.OK(t, p.Release())
		<-done
		want := access.Record{Time: time.Now(), Who: "olga", What: "set-key", Name: "x", Key: "acme", Cap: 5, Share: 300, Result: "done"}
		h.Act(want)
		time.Sleep(time.Minute)
		visits, err := h.Visits("x", begin, time.Now())
		expect.OK(t, err)
		if len(visits) != 2 || visits[0].Key != "acme" || visits[1].Key != "beta/a%2Fb" || visits[1].Gone.IsZero() {
			t.Errorf("%+v", visits)
		}
		changes, err := h.Changes("x", begin, time.Now())
		expect.OK(t, err)
		if c := changes[len(changes)-1]; c.Key != want.Key || c.Cap != want.Cap || c.Share != want.Share {
			t.Errorf("%+v", c)
		}
		if found := h.Find(9, func(_ string, v *history.Visit) bool { return v.Key == "beta/a%2Fb" }); len(found) != 1 {
			t.Errorf("%+v", found)
		}
	})
}

func TestFind(t *testing.T) {
	bubble(t, history.Options{}, func(t *testing.T, e protocol.Engine, h *history.History) {
		s, err := e.Open("x", engine.Client{}, func(protocol.Notification) {})
		expect.OK(t, err)
		id := engine.ID{Client: "api", Number: 17, Weight: 1}
		_, err = s.Step(t.Context(), protocol.Call{Number: 1, Requests: []protocol.Request{{
			Kind: protocol.Ask, ID: id, Limit: 1, Lease: time.Minute, Ticket: time.Minute, Who: &engine.Client{Host: "web-1", Label: "nightly", Caller: "job-17"},
		}}})
		expect.OK(t, err)
		job := func(_ string, v *history.Visit) bool { return v.Client.Caller == "job-17" }
		time.Sleep(10 * time.Second)
		if found := h.Find(10, job); len(found) != 1 || found[0].Semaphore != "x" || found[0].End != history.Here {
			t.Errorf("%+v", found)
		}
		if h.Glance("x").Dying != 0 {
			t.Error("dying")
		}
		time.Sleep(40 * time.Second)
		if h.Glance("x").Dying != 1 {
			t.Error("a holder whose lease runs out is not dying")
		}
		time.Sleep(30 * time.Second)
		if found := h.Find(10, job); len(found) != 1 || found[0].End != history.Ended || h.Glance("x").Dying != 0 {
			t.Errorf("%+v", found)
		}
		clients := 0
		h.Here(func(string, *history.Visit) { clients++ })
		if clients != 0 {
			t.Errorf("%d clients", clients)
		}
	})
}

// busy is an engine whose semaphores have a new holder and other figures at each look.
type busy struct {
	protocol.Engine
	names []string
	looks atomic.Int64
}

func (b *busy) List(context.Context) ([]string, error) { return b.names, nil }

func (b *busy) Open(string, engine.Client, func(protocol.Notification)) (protocol.Session, error) {
	return &busySession{b: b}, nil
}

func (b *busy) Close() error { return nil }

type busySession struct {
	protocol.Session
	b *busy
}

func (s *busySession) State(context.Context) (engine.State, error) {
	n := s.b.looks.Add(1)
	client := engine.Client{Host: fmt.Sprintf("host-%d.example.org", n%100), PID: int(n), Label: "worker of a queue", Caller: fmt.Sprintf("job-%d", n)}
	return engine.State{
		Limit: 10, Used: int(n%10) + 1,
		Holders: []engine.Holder{{ID: fmt.Sprintf("abcdefghij.klmnop-%d-1", n), Weight: 1, Token: n, Age: time.Second, Left: time.Minute, Client: client}},
		Waiters: []engine.Waiter{{ID: fmt.Sprintf("abcdefghij.klmnop-%d-1", n+1_000_000), Weight: 1, Waiting: time.Duration(n%1000) * time.Second, Client: client}},
	}, nil
}

func (s *busySession) Close() error { return nil }

// An hour of 1,000 semaphores that change all the time takes at most 64 MB: all figures, and
// the latest visits. SEMA_HISTORY=1000 tests all 1,000 semaphores, which takes minutes;
// without it the test uses a tenth.
func TestAnHourOfAThousandSemaphores(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, n := &busy{}, 100
		if of, err := strconv.Atoi(os.Getenv("SEMA_HISTORY")); err == nil {
			n = of
		}
		for i := range n {
			e.names = append(e.names, fmt.Sprintf("s%04d", i))
		}
		w, err := watch.New(e, &watch.Options{Rate: 1_000_000})
		expect.OK(t, err)
		defer w.Close()
		heap := func() int {
			var m runtime.MemStats
			runtime.GC()
			runtime.ReadMemStats(&m)
			return int(m.HeapAlloc)
		}
		before := heap()
		h, err := history.New(w, &history.Options{Always: true, Bytes: 70_000 * n})
		expect.OK(t, err)
		defer h.Close()
		time.Sleep(70 * time.Minute)
		used := heap() - before
		t.Logf("%d looks; %.1f MB", e.looks.Load(), float64(used)/1e6)
		if used > 75_000*n {
			t.Errorf("%d bytes", used)
		}
		for _, name := range []string{"s0000", e.names[n-1]} {
			points, err := h.Series(name, time.Now().Add(-time.Hour), time.Now(), 5*time.Second)
			expect.OK(t, err)
			if len(points) < 710 {
				t.Errorf("%d points of %s in the last hour", len(points), name)
			}
			visits, err := h.Visits(name, time.Now().Add(-time.Minute), time.Now())
			expect.OK(t, err)
			if len(visits) < 8 {
				t.Errorf("%d visits of %s in the last minute", len(visits), name)
			}
		}
	})
}

// When the memory is used up, the oldest data is dropped.
func TestMemoryIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := &busy{names: []string{"a", "b"}}
		w, err := watch.New(e, &watch.Options{Rounds: 10 * time.Millisecond})
		expect.OK(t, err)
		defer w.Close()
		h, err := history.New(w, &history.Options{Always: true, Bytes: 1_000_000, Step: 10 * time.Millisecond})
		expect.OK(t, err)
		defer h.Close()
		time.Sleep(2 * time.Minute)
		points, err := h.Series("a", time.Now().Add(-time.Hour), time.Now(), 0)
		expect.OK(t, err)
		if n := len(points); n < 1000 || n > 12_000 {
			t.Errorf("%d points", n)
		}
		if last := points[len(points)-1]; time.Since(last.From) > time.Second {
			t.Errorf("the last point is %v old", time.Since(last.From))
		}
	})
}

func TestOptionsOutOfRangeAreRefused(t *testing.T) {
	e := memengine.New()
	w, err := watch.New(e, nil)
	expect.OK(t, err)
	defer w.Close()
	for _, o := range []history.Options{{Keep: time.Second}, {Keep: 25 * time.Hour}, {Step: time.Millisecond}, {Step: time.Hour}, {Bytes: 1}, {Bytes: -1}} {
		h, err := history.New(w, &o)
		var refused *engine.ArgumentError
		if h != nil || !errors.As(err, &refused) || refused.Package != "history" {
			t.Errorf("%+v: %v", o, err)
		}
	}
}
