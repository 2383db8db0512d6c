package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"sema/internal/fixture/history"
	"sema/internal/watchdog"
	"sema/lab/faults"
	"sema/lab/faults/ground"
)

// round is a round as the runner plays it.
type round struct {
	ground  ground.Ground
	plan    *plan
	planted string
	long    time.Duration // how long faults come
	crew    *crew
	start   int64

	mu    sync.Mutex
	log   history.Round
	leaks []history.Breach // what the record does not show
}

// leak notes that something is left of the workers.
func (r *round) leak(semaphore, format string, words ...any) {
	r.leaks = append(r.leaks, history.Breach{
		Promise: history.PromiseLeak, Semaphore: semaphore, At: history.Now() - r.start, Text: fmt.Sprintf(format, words...),
	})
}

// The calm before the first fault, and what a settled ground may take.
const (
	calm       = 2 * time.Second
	settleTime = 30 * time.Second
)

// playRound plays a round: faults for so long, and calm before and after. The
// record is kept in dir if a promise was broken.
func playRound(ctx context.Context, g ground.Ground, s settings, seed uint64) *faults.Result {
	bug := plantedBug(s.planted)
	p := makePlan(seed, bug)
	r := &round{ground: g, plan: p, planted: s.planted, long: s.long, start: history.Now(), log: history.Round{Semaphores: p.semaphores, Found: found(g.Kind())}}
	result := &faults.Result{
		Ground: g.Kind(), Server: g.Server(), Seed: seed, Planted: s.planted, Began: time.Now().UTC().Truncate(time.Second),
		Semaphores: p.semaphores, Replay: s.replay(g.Kind(), seed), Fault: s.fault,
	}
	if bug != nil {
		result.Breaks = bug.promise
	}
	err := r.play(ctx, s.fault)
	if p.fault != "" {
		result.Fault = p.fault
	}
	result.Took = time.Duration(history.Now() - r.start)
	if err != nil {
		result.Void = err.Error()
		return result
	}
	result.Judged(append(r.leaks, history.Judge(&r.log)...))
	result.Load = faults.Count(r.log.Events)
	result.Load.Processes = len(r.log.Workers)
	for _, j := range p.jobs {
		result.Load.Goroutines += j.Goroutines
	}
	took := r.log.Recoveries()
	for i, w := range r.log.Windows {
		if d, ok := took[i]; ok {
			result.Recoveries = append(result.Recoveries, faults.Recovery{Fault: w.Fault, Took: d})
		}
		w.Begin, w.End = w.Begin-r.start, w.End-r.start
		result.Faults = append(result.Faults, w)
	}
	if bug == nil && result.Violations > 0 {
		result.History, err = r.save(s.dir)
		if err != nil {
			result.Void = err.Error()
		}
	}
	return result
}

// play plays the round.
func (r *round) play(ctx context.Context, only string) (err error) {
	settle, cancel := context.WithTimeout(ctx, settleTime)
	defer cancel()
	if err := r.ground.Settle(settle); err != nil {
		return fmt.Errorf("faults: before the round: %w", err)
	}
	for i := range r.plan.jobs {
		j := &r.plan.jobs[i]
		j.Link, j.Planted = r.ground.Link(j.Site), r.planted
	}
	if r.crew, err = newCrew(r.plan); err != nil {
		return err
	}
	defer r.crew.killAll()
	stop := watchdog.Watch(func(end time.Time, span time.Duration) { // of the whole host
		r.mu.Lock()
		defer r.mu.Unlock()
		r.log.Events = append(r.log.Events, history.Stalled(history.HostWorker, end, span))
	})
	defer stop()
	if err := r.plan.addFaults(only, append(r.ground.Faults(), workerFaults(r.crew)...)); err != nil {
		return err
	}
	if err := r.disturb(ctx); err != nil {
		return err
	}
	for _, p := range r.crew.end(4*r.crew.lease + 10*time.Second) {
		r.leak("", "worker %d does not end: %s", p.job.ID, p.dump())
	}
	r.crew.killAll()
	gone := history.Now()
	for _, p := range r.crew.all {
		if code := p.State().ExitCode(); code != 0 && p.killed == 0 {
			r.leak("", "worker %d ended with status %d: %s", p.job.ID, code, p.errors.String())
		}
	}
	r.addAccidents(gone)
	err = r.probe(ctx)
	stop()
	if err != nil {
		return err
	}
	return r.crew.record(&r.log)
}

// addAccidents notes what broke by itself, from the round's start until the workers were gone.
func (r *round) addAccidents(gone int64) {
	at := func(t time.Time) int64 { return history.Now() - int64(time.Since(t)) }
	for _, a := range r.ground.Accidents() {
		w := history.Window{Fault: a.Name, Begin: at(a.Begin), End: gone}
		if !a.End.IsZero() {
			w.End = at(a.End)
		}
		if w.End > r.start && w.Begin < gone {
			r.log.Windows = append(r.log.Windows, w)
		}
	}
}

// disturb has the faults happen, one step after the other.
func (r *round) disturb(ctx context.Context) error {
	if err := wait(ctx, calm); err != nil {
		return err
	}
	began := time.Now()
	for _, s := range r.plan.steps {
		if time.Since(began) >= r.long {
			break
		}
		if err := r.step(ctx, s); err != nil {
			return err
		}
		if err := wait(ctx, s.pause); err != nil {
			return err
		}
	}
	return wait(ctx, r.crew.lease)
}

// step has the faults of a step happen. All have ended when it returns.
func (r *round) step(ctx context.Context, s step) error {
	failed := make([]error, len(s.faults))
	var all sync.WaitGroup
	for i, o := range s.faults {
		all.Go(func() { failed[i] = r.happen(ctx, o) })
	}
	all.Wait()
	return cmp.Or(failed...)
}

func (r *round) happen(ctx context.Context, o occurrence) error {
	if err := wait(ctx, o.after); err != nil {
		return err
	}
	f := o.fault
	w := history.Window{Fault: f.Name, Begin: history.Now(), Excuse: f.Excuses}
	within, cancel := context.WithTimeout(ctx, 2*settleTime)
	defer cancel()
	hit, err := f.Begin(within, rand.New(rand.NewPCG(o.seed, 3)))
	if w.Workers = hit.Workers; !f.Spreads {
		w.Sites = hit.Sites
	}
	if f.End != nil && err == nil {
		_ = wait(ctx, o.lasts) // ended in any case
		err = f.End(within)
	}
	w.End = history.Now()
	r.mu.Lock()
	r.log.Windows = append(r.log.Windows, w)
	r.mu.Unlock()
	if err != nil {
		return fmt.Errorf("faults: %s: %w", f.Name, err)
	}
	return ctx.Err()
}

func wait(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
		return nil
	}
}

// save saves the record, and says where.
func (r *round) save(dir string) (string, error) {
	name := fmt.Sprintf("%s-%d-%s.jsonl", r.ground.Kind(), r.plan.seed, strings.Map(plain, r.plan.fault))
	f, err := os.Create(filepath.Join(dir, name))
	if err != nil {
		return "", fmt.Errorf("faults: %w", err)
	}
	return f.Name(), errors.Join(r.log.Save(f), f.Close())
}

// plain keeps the letters and digits of a name, for a file's name.
func plain(c rune) rune {
	if c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' {
		return c
	}
	return '-'
}

// found is the longest time until clients of a ground have found the master again.
// go-redis asks the Sentinels for it for one caller after the other, each up to the
// time of a request.
func found(kind string) time.Duration {
	if strings.HasPrefix(kind, "sentinel") {
		return time.Second
	}
	return 0
}
