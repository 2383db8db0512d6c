package main

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"sema"
	"sema/internal/measure"
)

// The rows of the page, which have a name each.
const (
	alone   = "alone"
	aloneMS = "alone, server"
	many    = "names"
	fleet   = "fleet"
	fleet99 = "fleet, p99"
	hot     = "hot"
	handOff = "hand-off"
	beside  = "bystanders"
	oldTx   = "old"
)

// The contestants.
const (
	ours       = "sema"
	behind     = "sema serve"
	bySlots    = "slots"
	byAdvisory = "advisory"
)

// part is one of the measurements.
type part struct {
	name    string
	measure func(*results, context.Context, plan, *bench) error
}

var parts = []part{
	{"pairs", (*results).contend}, {handOff, (*results).handOffs}, {beside, (*results).bystanders}, {oldTx, (*results).oldTransaction},
	{"waiting", (*results).waiters},
}

// measure measures all parts, or the one that the plan names, and keeps the figures of the others then.
func (r *results) measure(ctx context.Context, p plan, save func() error) (err error) {
	if p.only == "" {
		*r = results{Faults: r.Faults}
	} else if !slices.ContainsFunc(parts, func(one part) bool { return one.name == p.only }) {
		return fmt.Errorf("there is no part %q; try: -only waiting", p.only)
	}
	r.Go, r.Rounds = strings.TrimPrefix(runtime.Version(), "go"), p.Rounds
	b, err := newBench(ctx)
	if err != nil {
		return err
	}
	defer b.close()
	c, err := pgx.Connect(ctx, b.Address)
	if err != nil {
		return err
	}
	err = c.QueryRow(ctx, "SHOW server_version").Scan(&r.Server)
	_ = c.Close(ctx) // it was asked only
	r.Server, _, _ = strings.Cut(r.Server, " ")
	for _, one := range parts {
		if err == nil && (p.only == "" || p.only == one.name) {
			if err = one.measure(r, ctx, p, b); err == nil {
				err = save()
			}
			b.closeTo(1) // the server stays
		}
	}
	return err
}

// note notes a ratio, in place of one that was measured before.
func (r *results) note(row, beside string, is measure.Spread) {
	r.Ratios = slices.DeleteFunc(r.Ratios, func(one ratio) bool { return one.Row == row && (one.Beside == beside || row == oldTx) })
	r.Ratios = append(r.Ratios, ratio{row, beside, is})
}

// turns has players take turns, and returns what each did, by name.
func turns(ctx context.Context, p plan, row string, players []measure.Player) (*measure.Case, error) {
	all, err := measure.Turns(ctx, p.Plan, players, func(round int, s measure.Series) {
		last := s.Rounds[len(s.Rounds)-1]
		fmt.Fprintf(os.Stderr, "%s, round %d: %s %s/s, p50 %s, p99 %s\n", row, round+1, s.Name,
			measure.Count(measure.Rate(measure.Case{}, last)), measure.Duration(float64(last.P50NS)), measure.Duration(float64(last.P99NS)))
	})
	return &measure.Case{Name: row, Contestants: all}, err
}

// beside notes a figure of one contestant over that of another one.
func (r *results) beside(c *measure.Case, row, one, other string, f measure.Figure) {
	r.note(row, other, c.Ratio(c.Series(one), c.Series(other), f))
}

// contend measures pairs of acquire and release.
func (r *results) contend(ctx context.Context, p plan, b *bench) error {
	for _, w := range []work{
		{row: alone, processes: 1, goroutines: 1, names: 1, limit: 16},
		{row: many, processes: 16, goroutines: 1, names: 100, limit: 4},
		{row: fleet, processes: 4, goroutines: 16, names: 1, limit: 8, hold: 5 * time.Millisecond, poll: 10 * time.Millisecond},
		{row: hot, processes: 16, goroutines: 1, names: 1, limit: 16},
	} {
		own, err1 := b.sema(w, func(int) (sema.Engine, error) { return b.engine(ctx) })
		slots, err2 := b.slots(ctx, w)
		advisory, err3 := b.advisory(ctx, w)
		crews := map[string]*measure.Crew{ours: own, bySlots: slots, byAdvisory: advisory}
		names := []string{ours, bySlots, byAdvisory}
		var err4 error
		if w.row == hot {
			names = append(names, behind)
			front := w
			front.row += " in front"
			crews[behind], err4 = b.served(ctx, front)
		}
		for _, err := range []error{err1, err2, err3, err4} {
			if err != nil {
				return err
			}
		}
		var players []measure.Player
		for _, name := range names {
			players = append(players, measure.Player{Name: name, Play: func(ctx context.Context, length time.Duration) (measure.Round, error) {
				before, err := b.cpu()
				if err != nil {
					return measure.Round{}, err
				}
				round, err := crews[name].Play(ctx, length)
				after, err2 := b.cpu()
				round.ServerNS = int64(after - before)
				if err == nil {
					err = err2
				}
				return round, err
			}})
		}
		c, err := turns(ctx, p, w.row, players)
		if err != nil {
			return err
		}
		for _, other := range []string{bySlots, byAdvisory} {
			r.beside(c, w.row, ours, other, measure.Rate)
		}
		switch w.row {
		case alone:
			r.beside(c, aloneMS, ours, bySlots, measure.Each(func(r measure.Round) float64 { return float64(r.ServerNS) }))
		case fleet:
			r.beside(c, fleet99, ours, bySlots, measure.P99)
		case hot:
			r.note(hot, behind, c.Ratio(c.Series(behind), c.Series(bySlots), measure.Rate))
		}
		b.closeTo(1)
	}
	return nil
}

// timed makes a round of how long something took, again and again.
func timed(ctx context.Context, length time.Duration, once func(context.Context) (time.Duration, error)) (measure.Round, error) {
	var all []int64
	began := time.Now()
	for time.Since(began) < length {
		took, err := once(ctx)
		if err != nil {
			return measure.Round{}, err
		}
		all = append(all, int64(took))
	}
	slices.Sort(all)
	return measure.Round{Done: int64(len(all)), ElapsedNS: int64(time.Since(began)), P50NS: all[len(all)/2], P99NS: all[len(all)*99/100]}, nil
}

// pair are two processes that hand one permit to and fro.
type pair struct {
	sems [2]*sema.Semaphore
	has  *sema.Permit
	turn int
}

func (b *bench) pair(ctx context.Context, name string) (*pair, error) {
	p := &pair{}
	for i := range p.sems {
		e, err := b.engine(ctx)
		if err == nil {
			p.sems[i], err = b.semaphore(e, name, 1)
		}
		if err != nil {
			return nil, err
		}
	}
	var err error
	p.has, err = p.sems[0].Acquire(ctx)
	return p, err
}

// idle is how long nothing happens before each hand-off, and before what it is measured beside: processes that have slept are slower.
const idle = 20 * time.Millisecond

// next hands the permit to the other process, which has queued for it, and returns how long that took.
func (p *pair) next(ctx context.Context) (time.Duration, error) {
	type got struct {
		permit *sema.Permit
		at     time.Time
		err    error
	}
	told := make(chan got, 1)
	p.turn = 1 - p.turn
	go func() {
		permit, err := p.sems[p.turn].Acquire(ctx)
		told <- got{permit, time.Now(), err}
	}()
	time.Sleep(idle) // for it to queue
	began := time.Now()
	if err := p.has.Release(); err != nil {
		return 0, err
	}
	g := <-told
	p.has = g.permit
	return g.at.Sub(began), g.err
}

// handOffs measures them beside three round trips and a commit.
func (r *results) handOffs(ctx context.Context, p plan, b *bench) error {
	two, err := b.pair(ctx, handOff)
	if err != nil {
		return err
	}
	pool, err := b.pool(ctx, 1)
	if err != nil {
		return err
	}
	c, err := turns(ctx, p, handOff, []measure.Player{
		{Name: ours, Play: func(ctx context.Context, length time.Duration) (measure.Round, error) {
			return timed(ctx, length, two.next)
		}},
		{Name: "floor", Play: func(ctx context.Context, length time.Duration) (measure.Round, error) {
			return timed(ctx, length, func(ctx context.Context) (time.Duration, error) {
				time.Sleep(idle)
				began := time.Now()
				for _, sql := range []string{"SELECT 1", "SELECT 1", "SELECT pg_logical_emit_message(true, 'sema', '')"} {
					if _, err := pool.Exec(ctx, sql); err != nil {
						return 0, err
					}
				}
				return time.Since(began), nil
			})
		}},
	})
	if err == nil {
		r.beside(c, handOff, ours, "floor", measure.P50)
	}
	return err
}

// bystanders measures commits of others, while permits are handed over all the time and while they are not.
func (r *results) bystanders(ctx context.Context, p plan, b *bench) error {
	const clients = 8
	w := work{row: beside, processes: clients, goroutines: 1, names: 1}
	pools, err := b.pools(ctx, w)
	if err != nil {
		return err
	}
	commits := w.crew(func(ctx context.Context, process, _ int) (func(context.Context) error, error) {
		_, err := pools[process].Exec(ctx, "UPDATE mine SET n = n + 1 WHERE id = $1", process+1)
		return func(context.Context) error { return nil }, err
	})
	two, err := b.pair(ctx, beside)
	if err != nil {
		return err
	}
	c, err := turns(ctx, p, beside, []measure.Player{
		{Name: ours, Play: func(ctx context.Context, length time.Duration) (measure.Round, error) {
			var all sync.WaitGroup
			all.Go(func() { _, err = timed(ctx, length, two.next) })
			round, failed := commits.Play(ctx, length)
			all.Wait()
			if failed == nil {
				failed = err
			}
			return round, failed
		}},
		{Name: "none", Play: commits.Play},
	})
	if err == nil {
		r.beside(c, beside, ours, "none", measure.Rate)
	}
	return err
}

// oldTransaction measures steps before a transaction that sees the database as it is now, and at the end of a time in which
// steps go on beside it.
func (r *results) oldTransaction(ctx context.Context, p plan, b *bench) error {
	w := work{row: oldTx, processes: 1, goroutines: 1, names: 1, limit: 1}
	crew, err := b.sema(w, func(int) (sema.Engine, error) { return b.engine(ctx) })
	if err != nil {
		return err
	}
	c, err := pgx.Connect(ctx, b.Address)
	if err != nil {
		return err
	}
	defer func() { _ = c.Close(context.WithoutCancel(ctx)) }()
	var rates [2]measure.Series
	measured := func(i int) error {
		for range p.Rounds {
			round, err := crew.Play(ctx, p.Round)
			if err != nil {
				return err
			}
			rates[i].Rounds = append(rates[i].Rounds, round)
		}
		return nil
	}
	if _, err = crew.Play(ctx, p.Warmup); err == nil {
		err = measured(0)
	}
	if err == nil {
		_, err = c.Exec(ctx, "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM sema_state")
	}
	if err == nil {
		fmt.Fprintf(os.Stderr, "%s: for %v\n", oldTx, p.old)
		_, err = crew.Play(ctx, p.old)
	}
	if err == nil {
		err = measured(1)
	}
	if err == nil {
		both := measure.Case{}
		r.note(oldTx, p.old.String(), both.Ratio(rates[1], rates[0], measure.Rate))
	}
	return err
}

// waiting is what became of many processes that waited for one permit.
type waiting struct {
	Processes int           `json:"processes"`
	Listeners int           `json:"listeners"` // the most at once
	Passed    int           `json:"passed"`    // how many were served after one that came later
	Core      float64       `json:"core"`      // of the server, while they waited
	Served    time.Duration `json:"served"`    // all of them, one after the other
}

// crowdLease is the lease of many, who ask again each sixth of it.
const crowdLease = 10 * time.Minute

// waiters has many engines wait for one permit, which each gives back at once.
func (r *results) waiters(ctx context.Context, p plan, b *bench) error {
	const watched = 20 * time.Second
	processes := p.crowd
	if processes == 0 {
		return nil
	}
	pool, err := b.pool(ctx, 64) // of all: connections are the same for one engine as for many
	if err != nil {
		return err
	}
	holder, err := b.engineOn(pool)
	if err != nil {
		return err
	}
	came := make(chan sema.Event, processes)
	o := &sema.Options{Lease: crowdLease, Observer: sema.Observer{Queued: func(q sema.Event) { came <- q }}}
	first, err := sema.New(holder, "crowd", 1, o)
	if err != nil {
		return err
	}
	b.closing = append(b.closing, func() { _ = first.Close() })
	held, err := first.Acquire(ctx)
	if err != nil {
		return err
	}
	w := waiting{Processes: processes}
	served, failed := make(chan int, processes), make(chan error, processes)
	for i := range processes {
		e, err := b.engineOn(pool)
		if err != nil {
			return err
		}
		s, err := sema.New(e, "crowd", 1, o)
		if err != nil {
			return err
		}
		b.closing = append(b.closing, func() { _ = s.Close() })
		go func() {
			permit, err := s.Acquire(ctx)
			if err == nil {
				served <- i
				err = permit.Release()
			}
			if err != nil {
				failed <- err
			}
		}()
		select { // one after the other, so that their order is known
		case <-came:
		case err := <-failed:
			return err
		}
	}
	fmt.Fprintln(os.Stderr, "all wait")
	before, err := b.cpu()
	if err != nil {
		return err
	}
	listeners := func() error {
		n := 0
		err := pool.QueryRow(ctx, "SELECT count(*) FROM pg_locks JOIN pg_stat_activity USING (pid) WHERE locktype = 'advisory' AND mode = 'ExclusiveLock' AND granted AND state = 'idle'").Scan(&n)
		w.Listeners = max(w.Listeners, n)
		return err
	}
	for began := time.Now(); time.Since(began) < watched && err == nil; time.Sleep(time.Second) {
		err = listeners()
	}
	after, err2 := b.cpu()
	if err != nil || err2 != nil {
		return fmt.Errorf("the crowd: %v, %v", err, err2)
	}
	w.Core = (after - before).Seconds() / watched.Seconds()
	began := time.Now()
	if err := held.Release(); err != nil {
		return err
	}
	for most, n := -1, 0; n < processes; n++ {
		select {
		case i := <-served:
			if i < most {
				w.Passed++
			}
			most = max(most, i)
		case err := <-failed:
			return err
		case <-ctx.Done():
			return ctx.Err()
		}
		if n%50 == 0 {
			if err := listeners(); err != nil {
				return err
			}
		}
	}
	w.Served = time.Since(began)
	r.Waiting = w
	fmt.Fprintf(os.Stderr, "%+v\n", w)
	return nil
}
