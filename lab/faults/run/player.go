package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"sema/lab/faults"
	"sema/lab/faults/ground"
)

const (
	allPlanted = "all"
	// mildest is the fault of rounds with a planted bug that needs none.
	mildest = "server: SCRIPT FLUSH"
)

// player plays rounds, several at once.
type player struct {
	settings
	newGround func(ctx context.Context, kind, dir string) (ground.Ground, error)
	log       io.Writer

	mu         sync.Mutex
	out        *os.File
	next       int // round
	free       map[string][]ground.Ground
	violations int
	excused    int
	uncaught   int // planted bugs
	void       int
	grants     int
}

// play plays until the time is up, and returns the exit status.
func (p *player) play(ctx context.Context) int {
	dir, err := os.MkdirTemp("", "sema-faults-")
	if err == nil && p.settings.out != "" {
		p.out, err = os.OpenFile(p.settings.out, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	}
	if err != nil {
		_, _ = fmt.Fprintln(p.log, "faults:", err)
		return 2
	}
	defer func() { _ = os.RemoveAll(dir) }()
	p.free = map[string][]ground.Ground{}
	if p.planted == allPlanted {
		p.rounds = len(plantedBugs) * len(p.grounds)
	} else if p.rounds < 1<<30 {
		p.rounds *= len(p.grounds)
	}
	began := time.Now()
	var all sync.WaitGroup
	for range p.parallel {
		all.Go(func() {
			for ctx.Err() == nil && time.Since(began) < p.total {
				n, ok := p.take()
				if !ok {
					return
				}
				kind := p.grounds[n%len(p.grounds)]
				if p.planted == allPlanted {
					p.plant(ctx, dir, kind, &plantedBugs[n/len(p.grounds)])
				} else {
					p.one(ctx, dir, p.settings, kind, p.seed+uint64(n/len(p.grounds)))
				}
			}
		})
	}
	all.Wait()
	for _, list := range p.free {
		for _, g := range list {
			g.Close()
		}
	}
	if p.out != nil {
		if err := p.out.Close(); err != nil {
			_, _ = fmt.Fprintln(p.log, "faults:", err)
			p.void++
		}
	}
	_, _ = fmt.Fprintf(p.log, "%d rounds in %v, %d grants: %d violations, %d excused, %d rounds void\n",
		p.next, time.Since(began).Round(time.Second), p.grants, p.violations, p.excused, p.void)
	switch {
	case p.violations+p.uncaught > 0:
		return 1
	case p.void > 0:
		return 2
	}
	return 0
}

func (p *player) take() (n int, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.next >= p.rounds {
		return 0, false
	}
	p.next++
	return p.next - 1, true
}

// plant plays rounds with a planted bug until it is caught, five at the most.
func (p *player) plant(ctx context.Context, dir, kind string, bug *planted) {
	s := p.settings
	s.planted, s.fault = bug.name, cmp.Or(bug.fault, mildest)
	for i := range uint64(5) {
		if r := p.one(ctx, dir, s, kind, p.seed+i); ctx.Err() != nil || r.Caught() {
			return
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.uncaught++
}

// one plays one round. The ground is used again, unless the round failed.
func (p *player) one(ctx context.Context, dir string, s settings, kind string, seed uint64) *faults.Result {
	g, err := p.ground(ctx, dir, kind)
	r := &faults.Result{Ground: kind, Seed: seed, Fault: s.fault, Planted: s.planted, Began: time.Now().UTC(), Replay: s.replay(kind, seed)}
	if err != nil {
		r.Void = err.Error()
	} else {
		r = playRound(ctx, g, s, seed)
		if r.Void == "" && r.Violations == 0 {
			p.mu.Lock()
			p.free[kind] = append(p.free[kind], g)
			p.mu.Unlock()
		} else {
			g.Close()
		}
	}
	if ctx.Err() == nil { // interrupted, a round says nothing
		p.note(r)
	}
	return r
}

// ground is one of this kind that nobody uses.
func (p *player) ground(ctx context.Context, dir, kind string) (ground.Ground, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if list := p.free[kind]; len(list) > 0 {
		p.free[kind] = list[1:]
		return list[0], nil
	}
	own, err := os.MkdirTemp(dir, kind)
	if err != nil {
		return nil, fmt.Errorf("faults: %w", err)
	}
	within, cancel := context.WithTimeout(ctx, 2*settleTime)
	defer cancel()
	return p.newGround(within, kind, own)
}

// note writes a result down, and a line about it.
func (p *player) note(r *faults.Result) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.grants += r.Load.Grants
	if r.Planted == "" {
		p.violations += r.Violations
		p.excused += r.Excused
	}
	line, err := json.Marshal(r)
	if err == nil && p.out != nil {
		_, err = p.out.Write(append(line, '\n'))
	}
	if err != nil {
		_, _ = fmt.Fprintln(p.log, "faults:", err)
	}
	if r.Void != "" {
		p.void++
		_, _ = fmt.Fprintf(p.log, "%s seed %d, %s: void: %s\n", r.Ground, r.Seed, r.Fault, r.Void)
		return
	}
	_, _ = fmt.Fprintf(p.log, "%s seed %d, %s: %d grants in %v, %d lost, %d violations, %d excused\n",
		r.Ground, r.Seed, r.Fault, r.Load.Grants, r.Took.Round(time.Second), r.Load.Lost, r.Violations, r.Excused)
	if r.Planted != "" {
		_, _ = fmt.Fprintf(p.log, "  planted: %s: caught: %v\n", r.Planted, r.Caught())
	}
	shown := 0
	for _, b := range r.Breaches {
		if b.Excused == "" && shown < 5 {
			shown++
			_, _ = fmt.Fprintf(p.log, "  %s: %s: %s\n", b.Promise, b.Semaphore, b.Text)
		}
	}
	if r.History != "" {
		_, _ = fmt.Fprintf(p.log, "  record: %s\n  replay: %s\n", r.History, r.Replay)
	}
}
