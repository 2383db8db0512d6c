package sematest

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"sema/engine"
	"sema/internal/protocol"
)

// grace is how long the end of the test waits for releases that are on their
// way, such as that of a wait that was cancelled at the moment of its grant. It is
// counted in ticks: a machine that stands still for seconds does not use it up.
const grace = time.Second

// Permit is a permit that somebody holds.
type Permit struct {
	Semaphore string
	Key       engine.Key // whose it is, see sema.For
	ID        string
	Weight    int

	// Where is the stack of the goroutine that acquired it, as a panic shows it.
	// If several goroutines acquired at once, it names each place where one did.
	Where string

	id     engine.ID
	engine *Engine
}

// String names the permit, its semaphore and its weight.
func (p Permit) String() string {
	return fmt.Sprintf("permit %s of %q, weight %d,", p.ID, p.Semaphore, p.Weight)
}

// Lose makes the holder lose the permit. When Lose returns, the holder's next renewal has been refused, and in a moment
// the permit's contexts end with cause sema.ErrLost. If a fault stops the renewal, Lose may take a second, and the
// holder sees the loss when the fault or the lease ends. Nobody else gets the permit before its holder releases it or
// its lease ends. Losing a permit that is not held does nothing.
func (p Permit) Lose() {
	e := p.engine
	if !e.holds(p) {
		return
	}
	e.mu.Lock()
	if _, again := e.lost[p.id]; !again {
		e.lost[p.id] = false
	}
	e.mu.Unlock()
	// The holder may be on its way out of the call that granted the permit, and
	// ignores the first notification.
	ticks := time.NewTicker(poke)
	defer ticks.Stop()
	for left := grace; left > 0; {
		changed := e.change()
		if !e.notify(p.Semaphore, protocol.Notification{Renew: true}) {
			return // no process of the test has it
		}
		select {
		case <-changed:
		case <-ticks.C:
			left -= poke
		}
		if e.tried(p.id) {
			return
		}
	}
}

// holds reports whether a permit is held.
func (e *Engine) holds(p Permit) bool {
	return slices.ContainsFunc(e.state(p.Semaphore).Holders, func(h engine.Holder) bool { return h.ID == p.ID })
}

// tried reports whether the holder of a lost permit has been refused, or has
// released it.
func (e *Engine) tried(id engine.ID) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	tried, lost := e.lost[id]
	return tried || !lost
}

// notify tells all clients of a semaphore, and reports whether there is one.
func (e *Engine) notify(name string, n protocol.Notification) (any bool) {
	e.mu.Lock()
	var all []*session
	for _, s := range e.sessions {
		if s.name == name {
			all = append(all, s)
		}
	}
	e.mu.Unlock()
	for _, s := range all {
		s.notify(n)
	}
	return len(all) > 0
}

// Lose has every permit of a semaphore lost, as Permit.Lose does. It ends the
// test if there is none.
func (e *Engine) Lose(name string) {
	e.tb.Helper()
	held := e.Held(name)
	if len(held) == 0 {
		e.tb.Fatalf("sematest: nobody holds a permit of %q that could be lost", name)
	}
	for _, p := range held {
		p.Lose()
	}
}

// Held lists the permits of a semaphore that somebody holds, by their age, the
// oldest first. Those that were told to be lost are not listed.
func (e *Engine) Held(name string) []Permit {
	st := e.state(name)
	slices.SortFunc(st.Holders, func(a, b engine.Holder) int { return int(a.Token - b.Token) })
	var held []Permit
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, h := range st.Holders {
		id, err := engine.ParseID(h.ID)
		if _, lost := e.lost[id]; lost || err != nil {
			continue
		}
		held = append(held, Permit{Semaphore: name, Key: h.Key, ID: h.ID, Weight: h.Weight, Where: places(e.places[id]), id: id, engine: e})
	}
	return held
}

// AwaitHeld waits until at least n permits of a semaphore are held. It ends the
// test if ctx ends first.
func (e *Engine) AwaitHeld(ctx context.Context, name string, n int) {
	e.tb.Helper()
	e.await(ctx, name, func() (int, string) { return len(e.Held(name)), "held" }, n)
}

// AwaitWaiting waits until at least n callers wait for a permit of a semaphore. It
// ends the test if ctx ends first.
func (e *Engine) AwaitWaiting(ctx context.Context, name string, n int) {
	e.tb.Helper()
	e.await(ctx, name, func() (int, string) { return e.state(name).Waiting(), "waited for" }, n)
}

func (e *Engine) await(ctx context.Context, name string, count func() (int, string), n int) {
	e.tb.Helper()
	soon := time.NewTimer(poke)
	defer soon.Stop()
	for {
		changed := e.change()
		got, what := count()
		if got >= n {
			return
		}
		select {
		case <-changed:
		case <-soon.C:
			e.notify(name, protocol.Notification{Ask: true})
			soon.Reset(poke)
		case <-ctx.Done():
			e.tb.Fatalf("sematest: %d permits of %q %s, want %d: %v", got, name, what, n, context.Cause(ctx))
		}
	}
}

// poke is how often clients are made to tell how many wait in them: of itself a
// client does so when it has something else to say.
const poke = time.Millisecond

// change is closed after the next step.
func (e *Engine) change() <-chan struct{} {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.changed
}

// state is a snapshot past all faults; empty if the engine was closed.
func (e *Engine) state(name string) engine.State {
	s, err := e.inner.Open(name, engine.Client{Label: "sematest"}, func(protocol.Notification) {})
	if err != nil {
		return engine.State{}
	}
	defer func() { _ = s.Close() }()
	st, _ := s.State(context.Background())
	return st
}

// unreleased lists what is held, except what is released in a moment and what is
// meant to stay.
func (e *Engine) unreleased() []Permit {
	names, _ := e.inner.List(context.Background())
	var held []Permit
	for _, name := range names {
		held = append(held, e.Held(name)...)
	}
	const tick = grace / 100
	ticks := time.NewTicker(tick)
	defer ticks.Stop()
	for left := grace; ; {
		changed := e.change()
		held = slices.DeleteFunc(held, e.wasReleased)
		if len(held) == 0 || left <= 0 {
			return held
		}
		select {
		case <-changed:
		case <-ticks.C:
			left -= tick
		}
	}
}

// wasReleased reports whether a permit was released since it was seen, or is
// meant to stay.
func (e *Engine) wasReleased(p Permit) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	_, known := e.places[p.id]
	return !known || e.detached[p.id]
}

// places is one text of one place or several.
func places(all []string) string {
	switch len(all) {
	case 0:
		return "\ta place that is not known\n"
	case 1:
		return all[0]
	}
	return "one of these places:\n" + strings.Join(all, "or\n")
}
