// Package ground is what the rounds of the fault suite take place on: real
// servers, what lies between them and the workers, and the faults both can have.
package ground

import (
	"context"
	"math/rand/v2"
	"time"

	"sema/internal/fixture/history"
)

// Ground is a place for one round. Its servers are children of this process.
type Ground interface {
	// Kind names the ground: "standalone", "sentinel", "file", "postgres".
	Kind() string

	// Server is what it runs and in which version, as the server itself says.
	Server() string

	// Link is how the workers of a site reach the servers. Sites are numbered
	// from 0 to Sites-1; each has proxies of its own, so that one can be cut off
	// while the others are not.
	Link(site int) Link

	// Faults lists what can be done to this ground.
	Faults() []Fault

	// Settle waits until everything works again, with all faults ended: a write
	// arrives, on every master there is.
	Settle(ctx context.Context) error

	// Left lists what the engine has left that has no time to live.
	Left(ctx context.Context) ([]string, error)

	// Accidents lists what has broken by itself, in order.
	Accidents() []Accident

	// Close ends all servers and proxies, and waits until they are gone.
	Close()
}

// Accident is something that broke by itself, for everybody.
type Accident struct {
	Name       string
	Begin, End time.Time // End is zero: it is broken still
}

// Sites is how many sites every ground has.
const Sites = 3

// Link is how a worker reaches the servers. It is handed to a process as JSON.
type Link struct {
	URL string `json:"url"` // as the program takes it: redis://, redis+sentinel://, redis+cluster://, file://, postgres://

	// Via has the proxy for each server's own address. A worker dials the former
	// where go-redis wants the latter, which it may have learnt from a Sentinel
	// or from a cluster's map.
	Via map[string]string `json:"via,omitempty"`

	// Replicas is how many replicas must have a grant before it counts.
	Replicas int `json:"replicas,omitempty"`

	// Poll is how often an engine looks that cannot be told. 0: it is told.
	Poll time.Duration `json:"poll,omitempty"`

	// CA is a file with the certificate that servers are trusted by. Empty: no TLS.
	CA string `json:"ca,omitempty"`
}

// Fault is one thing that can happen to a ground. One fault is begun and ended
// by turns; different ones may overlap if Alone is false for both.
type Fault struct {
	Name string // "kill -9 of the server, nothing on disk"
	Note string // how it is done, in a few words

	// Begin does it. It returns when it is done.
	Begin func(ctx context.Context, r *rand.Rand) (Extent, error)

	// End takes it back, and returns when the ground works as before. Nil: the
	// fault is over by itself when Begin returns.
	End func(ctx context.Context) error

	// Lasts is how long it lasts between Begin and End: at the least, and at the most. Zero:
	// a second and a half, and one more.
	Lasts [2]time.Duration

	// Excuses says what no client can prevent while it lasts.
	Excuses history.Excuse

	// Spreads: those whom it hits hold up all others.
	Spreads bool

	// Alone: no other fault of the ground at the same time.
	Alone bool
}

// long is for a fault that begins slowly.
var long = [2]time.Duration{2 * time.Second, 2500 * time.Millisecond}

// Extent is the part of the crew that one occurrence of a fault hits; the zero value: all of it.
type Extent struct{ Sites, Workers []int }
