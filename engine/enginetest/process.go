//go:build unix

package enginetest

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"sema"
	"sema/engine"
)

// workerEnv tells a test binary to be a worker, and what to do.
const workerEnv = "SEMA_ENGINETEST_WORKER"

// job is what a worker does.
type job struct {
	URL   string        `json:"url"`
	Name  string        `json:"name"`
	Limit int           `json:"limit"`
	Lease time.Duration `json:"lease"`
	Keep  time.Duration `json:"keep"` // sema.Options.Keep
	Idle  bool          `json:"idle"` // it only keeps what it had
	File  string        `json:"file"` // where it records its holds, a line for each grant and each release
}

// Main is the TestMain of an engine's tests. With the URL of a Store it lets
// the tests run workers in processes of their own, which open the store by
// calling open. No goroutine may be left when the tests end.
func Main(m *testing.M, open func(url string) (sema.Engine, error)) {
	if words := os.Getenv(workerEnv); words != "" {
		if err := work(words, open); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}

// work acquires, holds and releases until it is told to stop by the end of its
// standard input.
func work(words string, open func(url string) (sema.Engine, error)) error {
	var j job
	if err := json.Unmarshal([]byte(words), &j); err != nil {
		return err
	}
	engine, err := open(j.URL)
	if err != nil {
		return err
	}
	out, err := os.OpenFile(j.File, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		_, _ = bufio.NewReader(os.Stdin).ReadString(0)
		cancel()
	}()
	if j.Idle {
		return keepIdle(ctx, engine, j, out)
	}
	var mu sync.Mutex
	joined := map[string]int64{}
	sem, err := sema.New(engine, j.Name, j.Limit, &sema.Options{Lease: j.Lease, Keep: j.Keep, Slots: true, Observer: sema.Observer{
		Queued: func(e sema.Queued) {
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
	for range 2 {
		all.Go(func() {
			for ctx.Err() == nil {
				h := Hold{Call: time.Now().UnixNano(), Weight: 1 + rand.IntN(min(2, j.Limit))}
				p, err := sem.AcquireN(ctx, h.Weight)
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
				line(out, h)
				hold := time.Duration(rand.IntN(4000)) * time.Microsecond
				if rand.IntN(300) == 0 {
					hold = 3 * j.Lease / 2 // to be renewed
				}
				select {
				case <-time.After(hold):
				case <-p.Context(ctx).Done():
				}
				h.Release, h.Trusted = time.Now().UnixNano(), p.Deadline().UnixNano()
				line(out, h)
				_ = p.Release() // lost, now and then
			}
		})
	}
	all.Wait()
	if err := sem.Close(); err != nil {
		return err
	}
	return engine.Close()
}

// keepIdle acquires everything and releases it, to keep it. It records until when
// it trusts that.
func keepIdle(ctx context.Context, engine sema.Engine, j job, out *os.File) error {
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
	last := Hold{ID: "all"}
	for _, p := range all {
		last.Trusted = max(last.Trusted, p.Deadline().UnixNano())
		if err := p.Release(); err != nil {
			return err
		}
	}
	line(out, last)
	<-ctx.Done()
	return sem.Close()
}

func line(out *os.File, h Hold) {
	data, _ := json.Marshal(h) // plain values
	_, _ = out.Write(append(data, '\n'))
}

// worker is a process that works.
type worker struct {
	cmd   *exec.Cmd
	stdin interface{ Close() error }
	file  string

	stopped bool  // SIGSTOPped at least once
	killed  int64 // when, if it was
}

func (e *env) worker(j job) *worker {
	e.Helper()
	w := &worker{file: j.File}
	words, err := json.Marshal(j)
	e.ok(err)
	w.cmd = exec.Command(os.Args[0], "-test.run=^$")
	w.cmd.Env = append(os.Environ(), workerEnv+"="+string(words))
	w.cmd.Stderr = os.Stderr
	in, err := w.cmd.StdinPipe()
	e.ok(err)
	w.stdin = in
	e.ok(w.cmd.Start())
	e.Cleanup(func() { _ = w.cmd.Process.Kill(); _ = w.cmd.Wait() })
	return w
}

// holds reads what a worker recorded; the second line of a hold replaces the
// first.
func (w *worker) holds() ([]Hold, error) {
	data, err := os.ReadFile(w.file)
	if err != nil && !os.IsNotExist(err) {
		return nil, err
	}
	type key struct { // a permit that passes on keeps its id
		id    string
		token int64
	}
	last := map[key]Hold{}
	for text := range strings.Lines(string(data)) {
		var h Hold
		if json.Unmarshal([]byte(text), &h) != nil {
			continue // cut short by SIGKILL
		}
		h.Faulty = w.stopped || w.killed != 0
		if w.killed != 0 && (h.Release == 0 || h.Release > w.killed) {
			h.Release = w.killed
		}
		last[key{h.ID, h.Token}] = h
	}
	holds := make([]Hold, 0, len(last))
	for _, h := range last {
		holds = append(holds, h)
	}
	return holds, nil
}

// RunProcesses has several processes use one semaphore of the store while some
// of them are killed and others stopped for longer than a lease, and checks
// the history of all they did.
func RunProcesses(t *testing.T, store Store, faults int) {
	const limit, workers = 3, 5
	e := &env{TB: t, store: store, name: t.Name()}
	dir := t.TempDir()
	lease := 5 * short // a starved process is not a dead one
	var all, running []*worker
	spawn := func() {
		j := job{URL: store.URL, Name: e.name, Limit: limit, Lease: lease, File: filepath.Join(dir, fmt.Sprint(len(all)))}
		if len(all)%2 == 0 {
			j.Keep = 5 * time.Millisecond
		}
		w := e.worker(j)
		all, running = append(all, w), append(running, w)
	}
	for range workers {
		spawn()
	}
	busy := func() {
		t.Helper()
		before := map[*worker]int{}
		count := func(w *worker) int {
			holds, err := w.holds()
			e.ok(err)
			return len(holds)
		}
		for _, w := range running {
			before[w] = count(w)
		}
		for _, w := range running {
			e.until(func() bool { return count(w) >= before[w]+10 })
		}
	}
	for i := range faults {
		busy()
		k := rand.IntN(len(running))
		w := running[k]
		if i%2 == 0 {
			w.killed = time.Now().UnixNano()
			e.ok(w.cmd.Process.Kill())
			_ = w.cmd.Wait()
			running = append(running[:k:k], running[k+1:]...)
			spawn()
			continue
		}
		w.stopped = true
		e.stop(w)
		time.Sleep(lease + lease/4) // the fault itself: longer than it is trusted
		e.ok(w.cmd.Process.Signal(syscall.SIGCONT))
	}
	busy()
	for _, w := range running {
		e.ok(w.stdin.Close())
	}
	for _, w := range running {
		if err := w.cmd.Wait(); err != nil {
			t.Errorf("worker: %v", err)
		}
	}
	h := &History{}
	for _, w := range all {
		holds, err := w.holds()
		e.ok(err)
		for _, hold := range holds {
			h.Add(hold)
		}
	}
	t.Logf("%d holds by %d processes", h.Len(), len(all))
	e.ok(h.Check(limit, lease/6)) // what a recall costs that never arrives
	e.empty(waitFree(e, limit), limit)
}

// RunKeepers has a process keep all permits of a semaphore while it is killed or
// stopped, and says how long another one waits for them. That one gets them once
// the leases have ended, and not while they may be trusted.
func RunKeepers(t *testing.T, store Store) {
	const limit = 3
	lease := 3 * short
	for _, fault := range []struct {
		name   string
		signal syscall.Signal
	}{{"killed", syscall.SIGKILL}, {"stopped", syscall.SIGSTOP}} {
		t.Run(fault.name, func(t *testing.T) {
			e := &env{TB: t, store: store, name: t.Name()}
			keeper := e.worker(job{URL: store.URL, Name: e.name, Limit: limit, Lease: lease, Keep: lease / 6, Idle: true, File: filepath.Join(t.TempDir(), "kept")})
			var kept []Hold
			e.until(func() bool {
				var err error
				kept, err = keeper.holds()
				e.ok(err)
				return len(kept) > 0
			})
			e.ok(keeper.cmd.Process.Signal(fault.signal))
			hit := time.Now()
			s := e.sem(limit, &sema.Options{Lease: lease})
			e.release(e.acquire(s, limit))
			got := time.Now()
			if early := kept[0].Trusted - got.UnixNano(); early > 0 && got.Sub(hit) > lease/6 {
				t.Errorf("another has what a %s process kept %v before its time is up", fault.name, time.Duration(early))
			}
			t.Logf("another process waited %v for what a %s one kept for %v at the most, with leases of %v", got.Sub(hit).Round(time.Millisecond), fault.name, lease/6, lease)
			if fault.signal == syscall.SIGSTOP {
				e.ok(keeper.cmd.Process.Signal(syscall.SIGCONT))
				e.ok(keeper.stdin.Close())
				e.ok(keeper.cmd.Wait())
			}
		})
	}
}

// stop freezes a worker, but not in the middle of a step: who holds a file
// engine's lock then holds up all others, which that engine admits to.
func (e *env) stop(w *worker) {
	s := e.session()
	for {
		e.ok(w.cmd.Process.Signal(syscall.SIGSTOP))
		ctx, cancel := context.WithTimeout(e.ctx(), sema.MinLease)
		_, err := step(ctx, s, engine.Request{Kind: engine.Release, ID: id(s, 1)})
		cancel()
		if err == nil {
			return
		}
		e.ok(w.cmd.Process.Signal(syscall.SIGCONT))
		time.Sleep(sema.MinLease) // for the others to catch up
	}
}
