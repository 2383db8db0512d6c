package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"time"

	"sema/internal/fixture/child"
)

// run is what is to be run.
type run struct {
	scenes   []string // none: all
	only     []string // contestants; none: all
	length   time.Duration
	other    *build // of another checkout, whose contestants play as well
	progress func(string)
}

// lane is a contestant in a scene, in one build, and what it did.
type lane struct {
	who    string
	beside bool // it is of the other build
	failed string
	turns  []played
	waits  histogram

	processes []*child.Process
}

// figure is of one scene.
type figure struct {
	scene
	lanes []*lane
}

// all runs the scenes.
func (r run) all(ctx context.Context) (figures []figure, err error) {
	own, err := ownBuild()
	if err != nil {
		return nil, err
	}
	defer own.remove()
	for _, name := range r.scenes {
		if !slices.ContainsFunc(scenes, func(s scene) bool { return s.name == name }) {
			return nil, fmt.Errorf("unknown scene %q", name)
		}
	}
	for _, name := range r.only {
		if contestants[name].open == nil {
			return nil, fmt.Errorf("unknown contestant %q", name)
		}
	}
	for _, s := range scenes {
		if len(r.scenes) > 0 && !slices.Contains(r.scenes, s.name) {
			continue
		}
		var lanes []*lane
		for _, who := range s.who {
			ours := contestants[who].ours
			if len(r.only) > 0 && !slices.Contains(r.only, who) || r.other != nil && !ours {
				continue
			}
			lanes = append(lanes, &lane{who: who, waits: histogram{}})
			if r.other != nil {
				lanes = append(lanes, &lane{who: who, beside: true, waits: histogram{}})
			}
		}
		if len(lanes) == 0 {
			continue
		}
		if err := r.scene(ctx, own, s, lanes); err != nil {
			return figures, fmt.Errorf("%s: %w", s.name, err)
		}
		figures = append(figures, figure{s, lanes})
	}
	return figures, nil
}

// scene lets the lanes take turns, in another order in each lap: a turn may still feel the one before. A lane that fails has
// no further turn.
func (r run) scene(ctx context.Context, own *build, s scene, lanes []*lane) error {
	store, stop, err := start(ctx, s.store)
	if err != nil {
		return err
	}
	defer stop()
	defer func() {
		for _, l := range lanes {
			l.end()
		}
	}()
	r.progress(s.name)
	fail := func(l *lane, err error) {
		if err != nil {
			l.failed = strings.Join(strings.Fields(err.Error()), " ")
			r.progress(s.name + ": " + l.who + " failed: " + l.failed)
		}
	}
	for i, l := range lanes {
		b := own
		if l.beside {
			b = r.other
		}
		fail(l, l.start(ctx, b, s, store, i))
	}
	for lap := range 1 + max(1, int(r.length/s.turn)) { // the first one warms up
		for _, k := range rand.Perm(len(lanes)) {
			l := lanes[k]
			if l.failed != "" {
				continue
			}
			p, err := l.turn(ctx, s.turn)
			if ctx.Err() != nil {
				return ctx.Err()
			}
			if fail(l, err); err == nil && lap > 0 {
				l.turns = append(l.turns, p)
			}
		}
	}
	for _, l := range lanes {
		if l.failed == "" {
			fail(l, l.told(ctx))
		}
	}
	return nil
}

// start starts a lane's processes, and the server that it needs beside its store.
func (l *lane) start(ctx context.Context, b *build, s scene, store string, number int) error {
	if contestants[l.who].serve {
		var err error
		if store, err = b.serve(ctx, store); err != nil {
			return err
		}
	}
	for process := range s.processes {
		cmd, err := child.Command(driver, job{
			Contestant: l.who, Store: store, Name: fmt.Sprint(s.name, "-", number), Limit: s.limit,
			Process: process, Processes: s.processes, Callers: s.callers, Light: s.light, Batch: s.batch, Hold: s.hold,
		})
		if err != nil {
			return err
		}
		cmd.Path, cmd.Args = b.bench, []string{b.bench}
		p, err := child.Start(cmd)
		if err != nil {
			return err
		}
		l.processes = append(l.processes, p)
	}
	for _, p := range l.processes {
		if err := hear(ctx, p, nil); err != nil {
			return err
		}
	}
	return nil
}

// patience bounds how long a process may take to answer.
const patience = time.Minute

// hear reads the next line that a process says into v, which is nil if the line is only "ready".
func hear(ctx context.Context, p *child.Process, v any) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	line, err := p.Line(ctx)
	if err != nil {
		return fmt.Errorf("a process has ended, or says nothing: %w", err)
	}
	if v == nil {
		return nil
	}
	return json.Unmarshal([]byte(line), v)
}

// warning is how long before a turn its processes are told of it.
const warning = 3 * time.Millisecond

// turn lets a lane's processes play at once.
func (l *lane) turn(ctx context.Context, length time.Duration) (sum played, err error) {
	t := turn{time.Now(), length}
	if len(l.processes) > 1 {
		t.From = t.From.Add(warning)
	}
	order, err := json.Marshal(t)
	for _, p := range l.processes {
		err = errors.Join(err, p.Order(string(order)))
	}
	for _, p := range l.processes {
		var one played
		if err == nil {
			err = hear(ctx, p, &one)
		}
		sum.Pairs += one.Pairs
		sum.CPU += one.CPU
		sum.Took = max(sum.Took, one.Took)
	}
	return sum, err
}

// told asks the processes which waits there were. It fails if there were no pairs.
func (l *lane) told(ctx context.Context) error {
	var pairs int64
	for _, p := range l.turns {
		pairs += p.Pairs
	}
	if pairs == 0 {
		return errors.New("nobody got a permit")
	}
	for _, p := range l.processes {
		if err := p.Order(waitsOrder); err != nil {
			return err
		}
		var waits histogram
		if err := hear(ctx, p, &waits); err != nil {
			return err
		}
		for wait, n := range waits {
			l.waits[wait] += n
		}
	}
	return nil
}

// end ends the processes, and kills those that do not end.
func (l *lane) end() {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	for _, p := range l.processes {
		if err := p.End(ctx); err != nil {
			p.Kill()
			fmt.Fprintln(os.Stderr, l.who+":", err)
		}
	}
	l.processes = nil
}
