// Package peers is the list of contestants: sema, what a user could pick in
// its place, and yardsticks. Those written in Go are opened here; the others
// have a driver in their own language.
package peers

import (
	"context"
	"fmt"
	"slices"
	"time"
)

// Kind says what a contestant is, and so which scenarios it takes part in.
type Kind string

// The kinds of contestants.
const (
	Semaphore Kind = "semaphore"  // any limit, among processes
	Lock      Kind = "lock"       // limit 1 only, among processes
	Yardstick Kind = "yardstick"  // limits nothing: what the round trips alone cost
	InProcess Kind = "in-process" // any limit, within one process
)

// Peer is one contestant.
type Peer struct {
	Name     string // as on the command line
	Kind     Kind
	What     string // the library and the type
	Settings string // what was chosen, where there was a choice
	Lacks    string // what a user has to know before the figures

	// Driver is the directory of the driver beside the Go one, which opens
	// contestants without a Driver. Needs are the programs it cannot do without.
	Driver string
	Needs  []string

	// Pairs is how many pairs of acquire and release one Work does; more than 1
	// where reading the clock would cost more than the work.
	Pairs int

	open func(context.Context, Setup) (Gate, error)
}

// Setup is what a contestant is to work with.
type Setup struct {
	URL   string // of the Redis server
	Name  string // of the semaphore
	Limit int
	Lease time.Duration
}

// Gate is a contestant at work, for all workers of a process.
type Gate interface {
	// Work waits for a permit, calls held while it has it, and gives it back.
	// It returns ctx's error when ctx ends before the permit is there.
	Work(ctx context.Context, held func()) error
	Close() error
}

// Find returns the contestant of that name.
func Find(name string) (Peer, error) {
	i := slices.IndexFunc(All, func(p Peer) bool { return p.Name == name })
	if i < 0 {
		return Peer{}, fmt.Errorf("unknown contestant %q", name)
	}
	return All[i], nil
}

// Open prepares a contestant that is written in Go.
func (p Peer) Open(ctx context.Context, s Setup) (Gate, error) {
	switch {
	case p.open == nil:
		return nil, fmt.Errorf("%s has a driver of its own, in %s", p.Name, p.Driver)
	case s.Limit < 1:
		return nil, fmt.Errorf("limit %d: want 1 or more", s.Limit)
	case s.Limit > 1 && p.Kind == Lock:
		return nil, fmt.Errorf("limit %d: %s has limit 1 only", s.Limit, p.Name)
	}
	g, err := p.open(ctx, s)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", p.Name, err)
	}
	return g, nil
}

// pause waits, for ctx's end at most.
func pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
		return nil
	}
}
