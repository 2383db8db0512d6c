package metrics_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"sema"
	"sema/engine"
	"sema/engines/memengine"
	"sema/internal/fixture/expect"
	"sema/internal/fixture/opened"
	"sema/internal/protocol"
	"sema/metrics"
	"sema/watch"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fragile is an engine that does not answer while it is broken.
type fragile struct {
	protocol.Engine
	broken atomic.Bool
}

var errBroken = &engine.Error{Op: "list", Err: errors.New("broken")}

func (e *fragile) List(ctx context.Context) ([]string, error) {
	if e.broken.Load() {
		return nil, errBroken
	}
	return e.Engine.List(ctx)
}

// watched runs a test with a Watch over an engine in memory, in virtual time.
func watched(t *testing.T, o *metrics.WatchOptions, test func(t *testing.T, e *fragile, x *metrics.Watch)) {
	synctest.Test(t, func(t *testing.T) {
		e := &fragile{Engine: memengine.New()}
		t.Cleanup(func() { _ = e.Close() }) // after the semaphores
		w, err := watch.New(e, nil)
		expect.OK(t, err)
		defer w.Close()
		x, err := metrics.NewWatch(w, o)
		expect.OK(t, err)
		defer x.Close()
		synctest.Wait()
		test(t, e, x)
	})
}

func TestWatchHasTheFiguresOfTheEngine(t *testing.T) {
	watched(t, nil, func(t *testing.T, e *fragile, x *metrics.Watch) {
		s := semaphore(t, e, "llm", 3, &sema.Options{})
		p, err := s.Acquire(t.Context(), sema.Weight(2))
		expect.OK(t, err)
		for range 2 {
			go func() {
				if p, err := s.Acquire(t.Context(), sema.Weight(2)); err == nil {
					_ = p.Release()
				}
			}()
		}
		time.Sleep(time.Minute) // virtual
		got := text(t, x)
		wants(t, got, map[string]string{
			`sema_limit{sema_name="llm"}`:                  "3",
			`sema_leases_active{sema_name="llm"}`:          "2",
			`sema_queue_size{sema_name="llm"}`:             "2",
			`sema_leases_reclaimed_total{sema_name="llm"}`: "0",
			`sema_engine_up`:                               "1",
		})
		var oldest float64
		if _, err := fmt.Sscan(value(t, got, `sema_queue_oldest_seconds{sema_name="llm"}`), &oldest); err != nil || oldest < 50 || oldest > 60 {
			t.Errorf("the oldest has waited %v s, want nearly 60", oldest)
		}
		expect.OK(t, p.Release())
		time.Sleep(time.Minute)
		wants(t, text(t, x), map[string]string{
			`sema_leases_active{sema_name="llm"}`:        "0",
			`sema_queue_size{sema_name="llm"}`:           "0",
			`sema_queue_oldest_seconds{sema_name="llm"}`: "0",
		})
		o, err := sema.Operate(e, "llm")
		expect.OK(t, err)
		expect.OK(t, o.Set(t.Context(), sema.Rule{Observe: true}))
		for range 2 {
			p, err := s.Acquire(t.Context(), sema.Weight(2))
			expect.OK(t, err)
			defer func() { _ = p.Release() }()
		}
		time.Sleep(time.Minute)
		wants(t, text(t, x), map[string]string{`sema_limit_enough{sema_name="llm"}`: "4"})
	})
}

// Keys are counted, and never named: there may be as many as a service has users.
func TestWatchNamesNoKey(t *testing.T) {
	watched(t, nil, func(t *testing.T, e *fragile, x *metrics.Watch) {
		plain := semaphore(t, e, "plain", 1, &sema.Options{})
		defer runtime.KeepAlive(take(t, plain))
		s := semaphore(t, e, "llm", 10, &sema.Options{Caps: sema.Caps{2}})
		ctx, cancel := context.WithCancel(t.Context())
		var all sync.WaitGroup
		defer all.Wait()
		defer cancel()
		recorder, err := metrics.NewRecorder(nil)
		expect.OK(t, err)
		watching := semaphore(t, e, "llm", 10, &sema.Options{Caps: sema.Caps{2}, Observer: recorder.Observer()})
		for i := range 5 {
			for range 3 {
				all.Go(func() {
					p, err := watching.Acquire(ctx, sema.For(fmt.Sprintf("tenant-%d", i)))
					if err == nil {
						<-ctx.Done()
						_ = p.Release()
					}
				})
			}
		}
		synctest.Wait()
		all.Go(func() {
			p, err := s.Acquire(ctx, sema.For("tenant-late"))
			if err == nil {
				_ = p.Release()
			}
		})
		time.Sleep(time.Minute) // virtual
		got := text(t, x)
		wants(t, got, map[string]string{
			`sema_keys_in_turn{sema_name="llm",level="1"}`: "1",
			`sema_keys_full{sema_name="llm",level="1"}`:    "5",
			`sema_queue_size{sema_name="llm"}`:             "6",
			`sema_leases_active{sema_name="llm"}`:          "10",
		})
		for _, none := range []string{"tenant", `sema_keys_in_turn{sema_name="plain"`, `sema_keys_full{sema_name="plain"`, `level="2"`} {
			if all := got + text(t, recorder); strings.Contains(all, none) {
				t.Errorf("%q in\n%s", none, all)
			}
		}
	})
}

// Keys of several names are counted level by level: at most six series a semaphore, whatever they are called.
func TestWatchCountsKeysByLevel(t *testing.T) {
	watched(t, nil, func(t *testing.T, e *fragile, x *metrics.Watch) {
		s := semaphore(t, e, "llm", 9, &sema.Options{Caps: sema.Caps{3, 2}})
		ctx, cancel := context.WithCancel(t.Context())
		var all sync.WaitGroup
		defer all.Wait()
		defer cancel()
		use := func(n int, path ...string) {
			for range n {
				all.Go(func() {
					p, err := s.Acquire(ctx, sema.For(path...))
					if err == nil {
						<-ctx.Done()
						_ = p.Release()
					}
				})
			}
			synctest.Wait()
		}
		use(3, "acme", "alice", "gpt") // the third waits at the cap of alice
		use(1, "acme", "alice")
		use(2, "acme", "bob") // the second waits at the cap of acme
		use(1, "beta", "bob")
		time.Sleep(time.Minute) // virtual
		got := text(t, x)
		wants(t, got, map[string]string{
			`sema_keys_in_turn{sema_name="llm",level="1"}`: "0",
			`sema_keys_full{sema_name="llm",level="1"}`:    "1", // acme
			`sema_keys_in_turn{sema_name="llm",level="2"}`: "1", // bob of acme
			`sema_keys_full{sema_name="llm",level="2"}`:    "1", // alice
			`sema_keys_in_turn{sema_name="llm",level="3"}`: "2", // gpt of alice, and alice's own caller
			`sema_keys_full{sema_name="llm",level="3"}`:    "0",
		})
		if n := strings.Count(got, "sema_keys_in_turn{") + strings.Count(got, "sema_keys_full{"); n != 6 {
			t.Errorf("%d series of keys in\n%s", n, got)
		}
		for _, name := range []string{"acme", "alice", "gpt", "bob"} {
			if strings.Contains(got, name) {
				t.Errorf("%q in\n%s", name, got)
			}
		}
	})
}

// Pools are gauges by name, at most sixteen of each label. Pools of the same name are added up in a group.
func TestWatchHasPools(t *testing.T) {
	group := func(name string) string { return strings.TrimRight(name, "0123456789") }
	watched(t, &metrics.WatchOptions{Names: 2, Group: group}, func(t *testing.T, e *fragile, x *metrics.Watch) {
		many := map[string]int{}
		for i := range engine.MaxPools {
			many[fmt.Sprintf("pool%02d", i)] = 1
		}
		sixteen, err := engine.NewPools(many, 1)
		expect.OK(t, err)
		for name, pools := range map[string]engine.Pools{"job1": "db=3,gpu=2", "job2": "gpu=5,tpu=1", "many1": sixteen, "many2": "a=1,pool00=2,zoo=1", "plain": "gpu=1"} {
			s := semaphore(t, e, name, 9, &sema.Options{Pools: pools})
			var takes []sema.AcquireOption
			if strings.HasPrefix(name, "job") {
				takes = []sema.AcquireOption{sema.Take("gpu", 2)}
			}
			p, err := s.Acquire(t.Context(), takes...)
			expect.OK(t, err)
			defer func() { _ = p.Release() }()
			if name != "job1" {
				continue
			}
			ctx, cancel := context.WithCancel(t.Context())
			ended := make(chan struct{})
			go func() {
				defer close(ended)
				_, _ = s.Acquire(ctx, sema.Take("gpu", 1))
			}()
			defer func() { cancel(); <-ended }()
		}
		synctest.Wait()
		time.Sleep(time.Minute) // virtual
		got := text(t, x)
		wants(t, got, map[string]string{
			`sema_pool_limit{sema_name="job",pool="db"}`:      "3",
			`sema_pool_limit{sema_name="job",pool="gpu"}`:     "7",
			`sema_pool_limit{sema_name="job",pool="tpu"}`:     "1",
			`sema_pool_used{sema_name="job",pool="db"}`:       "0",
			`sema_pool_used{sema_name="job",pool="gpu"}`:      "4",
			`sema_pool_waiting{sema_name="job",pool="gpu"}`:   "1",
			`sema_pool_limit{sema_name="many",pool="a"}`:      "1",
			`sema_pool_limit{sema_name="many",pool="pool00"}`: "3",
		})
		if n := strings.Count(got, `sema_pool_limit{sema_name="many"`); n != engine.MaxPools {
			t.Errorf("%d pools in\n%s", n, got)
		}
		for _, none := range []string{"sema_keys", `pool="zoo"`, `pool="",`, `sema_name="_other",pool`, `sema_name="plain",pool`} {
			if strings.Contains(got, none) {
				t.Errorf("%q in\n%s", none, got)
			}
		}
	})
}

// What a controller that finds the limit says is a gauge, while it says it.
func TestWatchHasWhatWentBadly(t *testing.T) {
	watched(t, nil, func(t *testing.T, e *fragile, x *metrics.Watch) {
		s := semaphore(t, e, "llm", 3, &sema.Options{})
		defer runtime.KeepAlive(take(t, s))
		if got := text(t, x); strings.Contains(got, "sema_limit_bad{") {
			t.Errorf("nobody finds the limit:\n%s", got)
		}
		raw := opened.Session(t, e, "llm", engine.Client{})
		_, err := raw.Step(t.Context(), protocol.Call{Number: 1, Requests: []protocol.Request{
			{Kind: protocol.SetLimit, Limit: 4, Auto: &engine.Auto{Min: 2, Max: 9, Bad: 31}},
		}})
		expect.OK(t, err)
		time.Sleep(10 * time.Second) // virtual
		wants(t, text(t, x), map[string]string{`sema_limit_bad{sema_name="llm"}`: "0.031", `sema_limit{sema_name="llm"}`: "4"})
		time.Sleep(2 * time.Minute)
		if got := text(t, x); strings.Contains(got, "sema_limit_bad{") {
			t.Errorf("long after the controller's last word:\n%s", got)
		}
	})
}

func TestWatchCountsLeasesThatEnd(t *testing.T) {
	watched(t, nil, func(t *testing.T, e *fragile, x *metrics.Watch) {
		// Nobody renews a detached permit after Close, as if its process had died.
		s := semaphore(t, e, "llm", 2, &sema.Options{Lease: 10 * time.Second, Detached: true})
		take(t, s)
		_ = s.Close()
		released := semaphore(t, e, "llm", 2, &sema.Options{})
		p := take(t, released)
		time.Sleep(5 * time.Second)
		_ = p.Release()
		time.Sleep(10 * time.Second)
		wants(t, text(t, x), map[string]string{
			`sema_leases_reclaimed_total{sema_name="llm"}`: "1",
			`sema_leases_active{sema_name="llm"}`:          "0",
		})
	})
}

func TestWatchBoundsNames(t *testing.T) {
	watched(t, &metrics.WatchOptions{Names: 2}, func(t *testing.T, e *fragile, x *metrics.Watch) {
		for i := range 10 {
			s := semaphore(t, e, fmt.Sprint("tenant-", i), 5, &sema.Options{})
			defer runtime.KeepAlive(take(t, s)) // what nobody has in sight comes back
		}
		time.Sleep(time.Minute)
		got := text(t, x)
		wants(t, got, map[string]string{
			`sema_limit{sema_name="tenant-0"}`:       "5",
			`sema_limit{sema_name="tenant-1"}`:       "5",
			`sema_leases_active{sema_name="_other"}`: "8",
		})
		if n := strings.Count(got, "sema_limit{"); n != 2 { // a sum of limits would limit nothing
			t.Errorf("%d limits, want 2", n)
		}
	})
}

// Beyond the ceiling the busiest are shown, and keep their place.
func TestWatchShowsTheBusiest(t *testing.T) {
	watched(t, &metrics.WatchOptions{Names: 1}, func(t *testing.T, e *fragile, x *metrics.Watch) {
		shown := func() string {
			t.Helper()
			time.Sleep(time.Minute)
			got := text(t, x)
			for _, name := range []string{"idle", "busy", "busier"} {
				if strings.Contains(got, fmt.Sprintf(`sema_limit{sema_name=%q}`, name)) {
					return name
				}
			}
			return got
		}
		want := func(name string) {
			t.Helper()
			if got := shown(); got != name {
				t.Errorf("%s is shown; want %s", got, name)
			}
		}
		expect.OK(t, operator(t, e, "idle").Set(t.Context(), sema.Rule{Limit: 5}))
		want("idle")
		busy := semaphore(t, e, "busy", 5, &sema.Options{})
		held := take(t, busy)
		want("busy")
		busier := semaphore(t, e, "busier", 5, &sema.Options{})
		first, second := take(t, busier), take(t, busier)
		want("busy") // nothing takes the place of one that is in use
		_ = held.Release()
		want("busy") // nor soon after
		time.Sleep(10 * time.Minute)
		want("busier")
		_, _ = first.Release(), second.Release()
		_, _ = busy.Close(), busier.Close()
	})
}

func TestWatchGivesPlacesOfTheGoneToOthers(t *testing.T) {
	watched(t, &metrics.WatchOptions{Names: 1}, func(t *testing.T, e *fragile, x *metrics.Watch) {
		for _, name := range []string{"first", "second"} {
			s := semaphore(t, e, name, 5, &sema.Options{})
			take(t, s)
			time.Sleep(time.Minute)
			wants(t, text(t, x), map[string]string{fmt.Sprintf(`sema_limit{sema_name=%q}`, name): "5"})
			_ = s.Close()
			expect.OK(t, operator(t, e, name).Remove(t.Context()))
			time.Sleep(time.Minute)
			if got := text(t, x); strings.Contains(got, name) {
				t.Errorf("%s is gone, but not from\n%s", name, got)
			}
		}
	})
}

func TestWatchSaysThatTheEngineIsAway(t *testing.T) {
	watched(t, nil, func(t *testing.T, e *fragile, x *metrics.Watch) {
		s := semaphore(t, e, "llm", 3, &sema.Options{})
		defer runtime.KeepAlive(take(t, s))
		time.Sleep(time.Minute)
		wants(t, text(t, x), map[string]string{`sema_engine_up`: "1", `sema_limit{sema_name="llm"}`: "3"})
		e.broken.Store(true)
		time.Sleep(time.Minute)
		got := text(t, x)
		wants(t, got, map[string]string{`sema_engine_up`: "0", `sema_leases_reclaimed_total{sema_name="llm"}`: "0"})
		if strings.Contains(got, "sema_limit") {
			t.Errorf("a limit that nobody knows in\n%s", got)
		}
		e.broken.Store(false)
		time.Sleep(2 * time.Minute)
		wants(t, text(t, x), map[string]string{`sema_engine_up`: "1", `sema_limit{sema_name="llm"}`: "3"})
	})
}

func TestWatchOptionsOutOfRangeAreRefused(t *testing.T) {
	e := memengine.New()
	defer func() { _ = e.Close() }()
	w, err := watch.New(e, nil)
	expect.OK(t, err)
	defer w.Close()
	for n, ok := range map[int]bool{0: true, 1: true, 100_000: true, 100_000 + 1: false, -1: false} {
		x, err := metrics.NewWatch(w, &metrics.WatchOptions{Names: n})
		var argument *sema.ArgumentError
		switch {
		case ok && err == nil:
			x.Close()
		case ok || !errors.As(err, &argument) || argument.Value != n:
			t.Errorf("%d names: %v", n, err)
		}
	}
	var argument *sema.ArgumentError
	if _, err := metrics.NewWatch(nil, nil); !errors.As(err, &argument) || argument.What != "watcher" {
		t.Errorf("no watcher: %v", err)
	}
}
