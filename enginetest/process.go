//go:build unix

package enginetest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"sema"
	"sema/engine"
	"sema/internal/fixture/child"
	"sema/internal/fixture/expect"
	"sema/internal/fixture/history"
	"sema/internal/fixture/stall"
)

// workerRole and keeperRole are those of the processes of the tests.
const (
	workerRole = "enginetest worker"
	keeperRole = "enginetest keeper"
)

// job is the job of a process of these tests.
type job struct {
	URL   string        `json:"url"`
	Name  string        `json:"name"`
	Limit int           `json:"limit"`
	Lease time.Duration `json:"lease"`
	Keep  time.Duration `json:"keep"` // sema.Options.Keep
	Long  bool          `json:"long"` // it holds its first permit for longer than a lease
}

// Main is the TestMain of an engine's tests. With the URL of a Store it lets
// the tests run workers in processes of their own, which open the store by
// calling open. As they mostly wait, eight tests run at once, unless -parallel says
// otherwise. No goroutine may be left when the tests end, but those that others ignore.
func Main(m goleak.TestingM, open func(url string) (sema.Engine, error), others ...goleak.Option) {
	for role, work := range map[string]func(context.Context, sema.Engine, job) error{workerRole: work, keeperRole: keepIdle} {
		child.Role(role, func(j job) error {
			engine, err := open(j.URL)
			if err != nil {
				return err
			}
			ctx, cancel := context.WithCancel(context.Background())
			go func() {
				_, _ = child.Order() // there is none: it is the end
				cancel()
			}()
			if err := work(ctx, engine, j); err != nil {
				return err
			}
			return engine.Close()
		})
	}
	child.Play()
	flag.Parse()
	if p := flag.Lookup("test.parallel"); p.Value.String() == p.DefValue {
		_ = p.Value.Set("8")
	}
	goleak.VerifyTestMain(m, others...)
}

// work acquires, holds and releases until the context ends. It reports each
// hold twice: at the grant and at the release.
func work(ctx context.Context, engine sema.Engine, j job) error {
	var mu sync.Mutex
	joined := map[string]int64{}
	sem, err := sema.New(engine, j.Name, j.Limit, &sema.Options{Lease: j.Lease, Keep: j.Keep, Slots: true, Observer: sema.Observer{
		Queued: func(e sema.Event) {
			mu.Lock()
			defer mu.Unlock()
			if joined[e.Permit] == 0 {
				joined[e.Permit] = time.Now().UnixNano()
			}
		},
	}})
	if err != nil {
		return err
	}
	var all sync.WaitGroup
	for i := range 2 {
		long := j.Long && i == 0
		all.Go(func() {
			for ctx.Err() == nil {
				h := history.Hold{Call: time.Now().UnixNano(), Weight: 1 + rand.IntN(min(2, j.Limit))}
				if long {
					h.Weight = 1 // the others go on beside it
				}
				p, err := sem.Acquire(ctx, sema.Weight(h.Weight))
				if err != nil {
					continue // stopped, or a store in trouble; the history shows what was granted
				}
				h.Return, h.ID, h.Token, h.Slot, h.Trusted = time.Now().UnixNano(), p.ID(), p.Token(), p.Slot(), p.Deadline().UnixNano()
				mu.Lock()
				h.Joined = joined[h.ID]
				delete(joined, h.ID)
				if h.Joined < h.Call { // a ticket may have been another caller's before
					h.Joined = 0
				}
				mu.Unlock()
				say(h)
				hold := time.Duration(rand.IntN(4000)) * time.Microsecond
				if long {
					hold, long = 3*j.Lease/2, false // to be renewed
				}
				select {
				case <-time.After(hold):
				case <-p.Context(ctx).Done():
				}
				h.Release, h.Trusted = time.Now().UnixNano(), p.Deadline().UnixNano()
				say(h)
				_ = p.Release() // lost, now and then
			}
		})
	}
	all.Wait()
	return sem.Close()
}

// keepIdle acquires everything and releases it, to keep it. It says until when it
// trusts that.
func keepIdle(ctx context.Context, engine sema.Engine, j job) error {
	sem, err := sema.New(engine, j.Name, j.Limit, &sema.Options{Lease: j.Lease, Keep: j.Keep})
	if err != nil {
		return err
	}
	var all []*sema.Permit
	for range j.Limit {
		p, err := sem.Acquire(ctx)
		if err != nil {
			return err
		}
		all = append(all, p)
	}
	last := history.Hold{ID: "all"}
	for _, p := range all {
		last.Trusted = max(last.Trusted, p.Deadline().UnixNano())
		if err := p.Release(); err != nil {
			return err
		}
	}
	say(last)
	<-ctx.Done()
	return sem.Close()
}

// say says a hold in one write, so that all of it is said or nothing.
func say(h history.Hold) {
	line, _ := json.Marshal(h) // plain values
	_, _ = os.Stdout.Write(append(line, '\n'))
}

// worker is a process that works.
type worker struct {
	*child.Tested
	stopped bool  // at least once
	killed  int64 // when, if it was
}

// lines is how many it has said.
func (w *worker) lines() int { return bytes.Count(w.Said(), []byte("\n")) }

// holds are what it said.
func (w *worker) holds() []history.Hold {
	type key struct { // a permit that passes on keeps its id
		id    string
		token int64
	}
	last := map[key]history.Hold{}
	for text := range strings.Lines(string(w.Said())) {
		var h history.Hold
		if json.Unmarshal([]byte(text), &h) != nil {
			continue // cut short by the kill
		}
		h.Faulty = w.stopped || w.killed != 0
		if w.killed != 0 && (h.Release == 0 || h.Release > w.killed) {
			h.Release = w.killed
		}
		last[key{h.ID, h.Token}] = h
	}
	holds := make([]history.Hold, 0, len(last))
	for _, h := range last {
		holds = append(holds, h)
	}
	return holds
}

// RunProcesses has several processes use one semaphore of the store while some
// of them are killed and others stopped for longer than a lease, and checks
// the history of all they did.
func RunProcesses(t *testing.T, store Store, faults int) {
	stall.Run(t, func(c *stall.Case) { runProcesses(c, store, fmt.Sprint(t.Name(), c.Try), faults) })
}

func runProcesses(c *stall.Case, store Store, name string, faults int) {
	const limit, workers = 3, 5
	const lease = 3 * time.Second // a starved process is not a dead one
	engine := store.Client(c)
	looker, err := sema.New(engine, name, limit, nil)
	expect.OK(c, err)
	c.Cleanup(func() { _ = looker.Close() })
	operator, err := sema.Operate(engine, name)
	expect.OK(c, err)
	c.Cleanup(func() { _ = operator.Close() })
	var all, running []*worker
	spawn := func() {
		j := job{URL: store.URL, Name: name, Limit: limit, Lease: lease, Long: len(all)%6 == 0} // one at a time, so that heavy ones fit beside it
		if len(all)%2 == 0 {
			j.Keep = 5 * time.Millisecond
		}
		w := &worker{Tested: child.Run(c, workerRole, j)}
		all, running = append(all, w), append(running, w)
	}
	for range workers {
		spawn()
	}
	busy := func() {
		for _, w := range running {
			before := w.lines()
			expect.Until(c, "ten holds of each process", func() bool { return w.lines() >= before+20 })
		}
	}
	for i := range faults {
		busy()
		k := rand.IntN(len(running))
		w := running[k]
		if i%2 == 0 {
			w.killed = time.Now().UnixNano()
			w.Kill()
			running = append(running[:k:k], running[k+1:]...)
			spawn()
			continue
		}
		w.stopped = true
		freeze(c, w, operator)
		time.Sleep(lease + lease/4) // the fault itself: longer than it is trusted
		expect.OK(c, w.Continue())
	}
	busy()
	for _, w := range running {
		w.Ends()
	}
	h := &history.Holds{}
	for _, w := range all {
		for _, hold := range w.holds() {
			h.Add(hold)
		}
	}
	c.Logf("%d holds by %d processes", h.Len(), len(all))
	err = h.Check(limit, lease/6) // what a recall costs that never arrives
	if err != nil && strings.HasPrefix(err.Error(), "limit") {
		c.Broken("%v", err)
	}
	expect.OK(c, err)
	p, err := looker.Acquire(expect.Within(c), sema.Weight(limit)) // when the leases of the dead are over
	expect.OK(c, err)
	expect.OK(c, p.Release())
	if st, err := looker.State(expect.Within(c)); err != nil || st.Used > 0 || len(st.Waiters) > 0 {
		c.Errorf("left over: %+v, %v", st, err)
	}
}

// freeze stops a process, but not in the middle of a step: one that has the file
// engine's lock holds up all others, which that engine admits to.
func freeze(tb testing.TB, w *worker, operator *sema.Operator) {
	for {
		expect.OK(tb, w.Stop())
		ctx, cancel := context.WithTimeout(context.Background(), engine.MinLease)
		err := operator.Release(ctx, "p1.1-1-1") // a step that changes nothing
		cancel()
		if errors.Is(err, sema.ErrLost) { // there is no such permit
			return
		}
		expect.OK(tb, w.Continue())
		time.Sleep(engine.MinLease) // for the others to catch up
	}
}

// RunKeepers kills or stops a process that keeps all permits of a semaphore, and
// logs how long another process waits for them. That process must get them once
// the leases have ended, and not while the keeper may still trust them.
func RunKeepers(t *testing.T, store Store) {
	const limit = 3
	const lease = 2 * time.Second
	for name, hit := range map[string]func(*child.Tested) error{
		"killed":  func(p *child.Tested) error { p.Kill(); return nil },
		"stopped": func(p *child.Tested) error { return p.Stop() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			stall.Run(t, func(c *stall.Case) {
				name := fmt.Sprint(t.Name(), c.Try)
				keeper := child.Run(c, keeperRole, job{URL: store.URL, Name: name, Limit: limit, Lease: lease, Keep: lease / 6})
				line, err := keeper.Line(expect.Within(c))
				expect.OK(c, err)
				var kept history.Hold
				expect.OK(c, json.Unmarshal([]byte(line), &kept))
				expect.OK(c, hit(keeper))
				began := time.Now()
				s, err := sema.New(store.Client(c), name, limit, &sema.Options{Lease: lease})
				expect.OK(c, err)
				defer func() { _ = s.Close() }()
				st, err := s.State(expect.Within(c)) // it may have given back what it kept before it was hit
				expect.OK(c, err)
				p, err := s.Acquire(expect.Within(c), sema.Weight(limit))
				expect.OK(c, err)
				got := time.Now()
				expect.OK(c, p.Release())
				if early := kept.Trusted - got.UnixNano(); early > 0 && st.Used == limit && got.Sub(began) > lease/6 {
					c.Broken("another has what a process kept %v before its time is up", time.Duration(early))
				}
				c.Logf("another process waited %v for what one kept for %v at the most, with leases of %v", got.Sub(began).Round(time.Millisecond), lease/6, lease)
				if keeper.Continue() == nil { // it was not killed
					keeper.Ends()
				}
			})
		})
	}
}
