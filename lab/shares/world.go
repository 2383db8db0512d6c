// Package shares has tenants share one semaphore, each of its processes a
// program of its own, and keeps what all of them saw: for the judge, and for figures. It
// is for Linux, where the processes of a host have one clock.
package shares

import (
	"cmp"
	"context"
	"fmt"
	"strconv"
	"time"

	"sema"
	"sema/engine"
	"sema/internal/fixture/child"
	"sema/internal/fixture/history"
)

// Order is how callers of several tenants are put in order.
type Order string

// The orders.
const (
	Shares   Order = "shares"                  // sema.For
	Come     Order = "first come first served" // one semaphore, which knows no tenants
	TwoLevel Order = "two-level"               // a semaphore for each tenant, and one for all behind it
	Flat     Order = "a key for each user"     // sema.For with the whole path as one name, and no caps
	AtOnce   Order = "all at once"             // sema.Take, and no keys
	InTurn   Order = "one after the other"     // a semaphore for each pool, by name; one is held while the next is waited for
)

// World is who uses the semaphore, and how.
type World struct {
	Name      string
	Order     Order
	Limit     int
	Caps      sema.Caps    // of a key, by its number of names; 0: the limit
	Pools     engine.Pools // with AtOnce and InTurn
	Tenants   []Tenant
	Processes int
	Seed      uint64

	// Kill has the first process killed as soon as it holds something. What it wrote down is lost.
	Kill  bool
	Lease time.Duration // 0: half a minute

	// Rounds is how often each caller acquires; 0: until For is over.
	Rounds int
	For    time.Duration
}

// Tenant is one that shares.
type Tenant struct {
	Key     string // names with slashes between
	Callers int    // the first one in a process by the tenant's place, the others in those that follow
	Weight  int    // of one acquisition: 1 … Weight, by chance
	Takes   engine.Pools
	Hold    time.Duration
	Idle    time.Duration // between two acquisitions, exponentially distributed, with this mean
	Share   int           // 0: what all have
	Cap     int           // 0: that of World.Caps
}

// job is what a process does.
type job struct {
	World
	URL     string
	Process int
}

const role = "shares worker"

func (w World) lease() time.Duration { return cmp.Or(w.Lease, 30*time.Second) }

// Play lets the world play on the engine of a URL, redis://, unix://, file:// or postgres://, and returns what
// its processes wrote down.
func Play(ctx context.Context, url string, w World) (*history.Round, error) {
	r := &history.Round{Clock: history.Clock(), Semaphores: []history.Semaphore{{
		Name: w.Name, Limit: w.Limit, Lease: w.lease(), Keys: len(w.Tenants), Caps: w.Caps.List(), Rules: map[string]history.Rule{},
	}}}
	for _, t := range w.Tenants {
		if t.Share != 0 || t.Cap != 0 {
			r.Semaphores[0].Rules[t.Key] = history.Rule{Share: t.Share, Cap: t.Cap}
		}
	}
	if err := w.rules(ctx, url); err != nil {
		return nil, err
	}
	var all []*child.Process
	defer func() {
		for _, p := range all {
			p.Kill()
		}
	}()
	for i := range w.Processes {
		r.Workers = append(r.Workers, history.Worker{ID: i})
		cmd, err := child.Command(role, job{w, url, i})
		if err != nil {
			return nil, err
		}
		p, err := child.Start(cmd)
		if err != nil {
			return nil, err
		}
		all = append(all, p)
		if line, err := p.Line(ctx); err != nil || line != "ready" {
			return nil, fmt.Errorf("shares: process %d of %s says %q: %w", i, w.Name, line, err)
		}
	}
	for _, p := range all {
		if err := p.Order("go"); err != nil {
			return nil, err
		}
	}
	if w.Kill {
		if err := w.holds(ctx, url, all[0].PID()); err != nil {
			return nil, err
		}
		all[0].Kill()
		all = all[1:]
	}
	if w.Rounds == 0 {
		select {
		case <-time.After(w.For):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		for _, p := range all {
			if err := p.Order("stop"); err != nil {
				return nil, err
			}
		}
	}
	for i, p := range all {
		if err := p.Wait(ctx); err != nil {
			return nil, fmt.Errorf("shares: process %d of %s: %w", i, w.Name, err)
		}
		said := p.Said()
		events, err := history.Read(said[len("ready\n"):])
		if err != nil {
			return nil, err
		}
		r.Events = append(r.Events, events...)
	}
	return r, nil
}

// Light are so many tenants of a kind, called after their number.
func Light(n int, t Tenant) (all []Tenant) {
	for i := range n {
		t.Key = "light-" + strconv.Itoa(i)
		all = append(all, t)
	}
	return all
}
