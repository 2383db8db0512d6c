package history_test

import (
	"context"
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
	"sema/internal/fixture/opened"
	"sema/internal/history"
	"sema/internal/protocol"
	"sema/watch"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// bubble runs f in virtual time, with a history that looks all the time: two seconds after
// each full minute, seven seconds, …
func bubble(t *testing.T, f func(t *testing.T, e protocol.Engine, h *history.History)) {
	synctest.Test(t, func(t *testing.T) {
		e := memengine.New()
		w, err := watch.New(e, nil)
		expect.OK(t, err)
		time.Sleep(2 * time.Second)
		h := history.New(w, history.Options{Always: true})
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
	return opened.Semaphore(t, e, "x", 2, &sema.Options{Label: label, Lease: 30 * time.Second})
}

// The history has who held the semaphore, who waited, and who left the queue, with their
// times and keys, the acts of operators, and the figures, for an hour.
func TestWhatHappened(t *testing.T) {
	bubble(t, func(t *testing.T, e protocol.Engine, h *history.History) {
		time.Sleep(58 * time.Second) // the first round finds nobody
		begin := time.Now()
		at := func(d time.Duration) { time.Sleep(time.Until(begin.Add(d))) }
		first, second, third := semaphore(t, e, "first"), semaphore(t, e, "second"), semaphore(t, e, "third")
		p, err := first.Acquire(t.Context(), sema.Weight(2))
		expect.OK(t, err)
		at(time.Minute)
		done := make(chan *sema.Permit)
		go func() {
			p, err := second.Acquire(context.Background(), sema.For("beta", "a/b"))
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
		at(10*time.Minute + 3*time.Second)
		expect.OK(t, q.Release())
		at(11 * time.Minute)

		var got []string
		for _, e := range h.Events("x", 100) {
			what := e.Kind + " " + e.Client.Label
			if e.Act != nil {
				what = e.Act.Who + " " + e.Act.What
			}
			got = append(got, fmt.Sprintf("%v %s %s", e.Time.Sub(begin), what, e.Key))
		}
		want := []string{
			"10m7s released second beta/a%2Fb", "7m2s left third ", "7m0s olga revoke ", "4m7s released first ", "4m3s granted second beta/a%2Fb",
			"2m0s queued third ", "1m0s queued second beta/a%2Fb", "2s limit  ", "0s granted first ",
		}
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("%q", got)
		}
		if last := h.Events("x", 1); len(last) != 1 || last[0].Kind != "released" || last[0].Permit != q.ID() || last[0].Held < 5*time.Minute {
			t.Errorf("%+v", last)
		}
		if none := h.Events("y", 9); none != nil {
			t.Errorf("%+v", none)
		}
		points := h.Series("x", begin, time.Minute)
		for _, p := range points {
			grants, below := p.Waits.Count(), p.Waits.Below(.5)
			switch minute := p.From.Sub(begin) / time.Minute; {
			case minute == 0 && (p.Used != 2 || p.Limit != 2 || p.Waiting != 0 || grants != 1 || below != time.Second),
				minute == 3 && (p.Used != 2 || p.Waiting != 2 || grants != 0 || below != 0),
				minute == 4 && (grants != 1 || below != 256*time.Second),
				minute == 7 && p.Used != 1:
				t.Errorf("%d: %+v", minute, p)
			}
		}
		if len(points) < 10 || len(points) > 12 || !points[0].From.Equal(begin) {
			t.Errorf("%d points", len(points))
		}
		if glance := h.Glance("x"); glance.Waits != 2 || glance.Usual != 256*time.Second || glance.Pause != nil {
			t.Errorf("%+v", glance)
		}
		expect.OK(t, first.Close())
		time.Sleep(65 * time.Minute) // some of it is old now
		if glance := h.Glance("x"); glance != (history.Glance{}) {
			t.Errorf("waits were never dropped: %+v", glance)
		}
		time.Sleep(time.Hour)
		if points, events := h.Series("x", begin, time.Minute), h.Events("x", 9); points != nil || events != nil {
			t.Errorf("%d points and %d events were never dropped", len(points), len(events))
		}
	})
}

// What began before the first look has the time of its beginning, if that is within the hour.
// How long such holders waited is unknown.
func TestWhatBeganBeforeTheFirstLook(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := memengine.New()
		begin := time.Now()
		s := semaphore(t, e, "old")
		p, err := s.Acquire(t.Context())
		expect.OK(t, err)
		time.Sleep(30 * time.Minute)
		q, err := s.Acquire(t.Context())
		expect.OK(t, err)
		ctx, leave := context.WithCancel(t.Context())
		over := make(chan struct{})
		go func() { _, _ = s.Acquire(ctx); close(over) }()
		time.Sleep(40 * time.Minute)
		w, err := watch.New(e, nil)
		expect.OK(t, err)
		defer w.Close()
		h := history.New(w, history.Options{Always: true})
		defer h.Close()
		time.Sleep(time.Second)
		var got []string
		for _, e := range h.Events("x", 9) {
			got = append(got, fmt.Sprint(e.Kind, " ", e.Time.Sub(begin)))
		}
		if want := []string{"limit 1h10m0s", "queued 30m0s", "granted 30m0s"}; fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("%q", got)
		}
		if glance := h.Glance("x"); glance.Waits != 0 {
			t.Errorf("%+v", glance)
		}
		leave()
		<-over
		expect.OK(t, p.Release())
		expect.OK(t, q.Release())
	})
}

// A caller is there with its id, its key and whether its lease ends, and then it is gone.
func TestWhoIsThere(t *testing.T) {
	bubble(t, func(t *testing.T, e protocol.Engine, h *history.History) {
		s := opened.Session(t, e, "x", engine.Client{})
		for i, caller := range []string{"job-17", "job-18"} {
			_, err := s.Step(t.Context(), protocol.Call{Number: uint64(i + 1), Requests: []protocol.Request{{
				Kind: protocol.Ask, ID: engine.ID{Client: "api", Number: uint64(i + 1), Weight: 1}, Limit: 1, Lease: time.Minute, Ticket: 5 * time.Minute, Wait: true,
				Who: &engine.Client{Host: "web-1", Label: "nightly", Caller: caller},
			}}})
			expect.OK(t, err)
		}
		check := func(want string, each func(func(history.Caller)), dying int) {
			t.Helper()
			found := map[string]string{}
			each(func(c history.Caller) { found[c.Client.Caller] = fmt.Sprint(c.Semaphore, " ", c.Kind, " ", c.Dying) })
			if fmt.Sprint(found) != want || h.Glance("x").Dying != dying {
				t.Errorf("%v; %d dying", found, h.Glance("x").Dying)
			}
		}
		time.Sleep(10 * time.Second)
		check("map[job-17:x granted false job-18:x queued false]", h.Here, 0)
		check("map[]", h.Gone, 0)
		time.Sleep(40 * time.Second)
		check("map[job-17:x granted true job-18:x queued false]", h.Here, 1)
		time.Sleep(30 * time.Second)
		check("map[job-18:x queued false]", h.Here, 0)
		check("map[job-17:x ended false]", h.Gone, 0)
		time.Sleep(time.Hour)
		check("map[]", h.Here, 0)
	})
}

// How long a semaphore has been full or paused is since the first of the looks that all found it so. The last acts that were
// done are known.
func TestSinceWhenItIsSo(t *testing.T) {
	bubble(t, func(t *testing.T, e protocol.Engine, h *history.History) {
		sem := semaphore(t, e, "job")
		p, err := sem.Acquire(t.Context(), sema.Weight(2))
		expect.OK(t, err)
		o := opened.Operator(t, e, "x")
		expect.OK(t, o.Pause(t.Context()))
		h.Act(access.Record{Time: time.Now(), Who: "bob", What: "pause", Name: "x", Result: "done"})
		h.Act(access.Record{Time: time.Now(), Who: "eve", What: "limit", Name: "x", Limit: 9, Result: "gone"})
		began := time.Now()
		time.Sleep(10 * time.Minute)
		glance := h.Glance("x")
		for _, at := range []time.Time{glance.Full, glance.Paused} {
			if late := at.Sub(began); late < 0 || late > 5*time.Second {
				t.Errorf("%v after it began", late)
			}
		}
		if glance.Pause == nil || glance.Pause.Who != "bob" || glance.Limit != nil {
			t.Errorf("%+v", glance)
		}
		expect.OK(t, p.Release())
		expect.OK(t, o.Unpause(t.Context()))
		time.Sleep(10 * time.Second)
		if glance := h.Glance("x"); !glance.Full.IsZero() || !glance.Paused.IsZero() {
			t.Errorf("%+v", glance)
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

// An hour of 1,000 semaphores that change all the time takes about 65 MB: all figures, and
// the latest events. SEMA_HISTORY=1000 tests all 1,000 semaphores, which takes minutes;
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
			runtime.GC() // what pools keep outlives the first
			runtime.ReadMemStats(&m)
			return int(m.HeapAlloc)
		}
		before := heap()
		h := history.New(w, history.Options{Always: true, Bytes: 48_000 * n})
		defer h.Close()
		time.Sleep(70 * time.Minute)
		used := heap() - before
		t.Logf("%d looks; %.1f MB", e.looks.Load(), float64(used)/1e6)
		if used > 70_000*n {
			t.Errorf("%d bytes", used)
		}
		for _, name := range []string{"s0000", e.names[n-1]} {
			if points := h.Series(name, time.Now().Add(-time.Hour), h.Step()); len(points) < 355 {
				t.Errorf("%d points of %s in the last hour", len(points), name)
			}
			if events := h.Events(name, 20); len(events) < 20 {
				t.Errorf("%d events of %s", len(events), name)
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
		h := history.New(w, history.Options{Always: true, Bytes: 1_000_000})
		defer h.Close()
		time.Sleep(2 * time.Minute)
		points, events := h.Series("a", time.Now().Add(-time.Hour), h.Step()), h.Events("a", 10_000)
		if n := len(points); n < 1000 || n > 12_000 {
			t.Errorf("%d points", n)
		}
		if n := len(events); n < 100 || n > 1500 {
			t.Errorf("%d events", n)
		}
		if last := points[len(points)-1]; time.Since(last.From) > time.Second || time.Since(events[0].Time) > 2*time.Second {
			t.Errorf("the last point is %v old, the last event %v", time.Since(last.From), time.Since(events[0].Time))
		}
	})
}

// A time below which waits were is the bound of a class.
func TestBoundsOfWaits(t *testing.T) {
	for _, c := range []struct {
		waits history.Waits
		q     float64
		want  time.Duration
	}{
		{history.Waits{}, .5, 0},
		{history.Waits{0: 1}, .5, time.Second},
		{history.Waits{0: 9, 4: 1}, .5, time.Second},
		{history.Waits{0: 9, 4: 1}, .95, 16 * time.Second},
		{history.Waits{1: 1}, 0, 2 * time.Second},
		{history.Waits{10: 1, 15: 1}, .5, 1024 * time.Second},
		{history.Waits{10: 1, 15: 1}, .51, 32768 * time.Second},
	} {
		if got := c.waits.Below(c.q); got != c.want {
			t.Errorf("%v of %v: %v", c.q, c.waits, got)
		}
	}
}
