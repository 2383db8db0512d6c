// Package engine defines what users see of every engine: the state of a semaphore, errors, and
// the ranges of names and values. The engines are in sema/engines; an engine on another store is
// made with package register.
package engine

import (
	"os"
	"time"
)

// Auto is a controller's report about the limit that it sets.
type Auto struct {
	Min int // the range of the limit
	Max int
	Bad int // the bad part of the time held in the last window, in thousandths
}

// Client describes a client to operators.
type Client struct {
	Host  string `json:"host"`
	PID   int    `json:"pid"`
	Label string `json:"label,omitempty"`

	// Version is the release of sema that the client runs; "" if unknown, or if it runs none.
	Version string `json:"version,omitempty"`

	Caller string        `json:"caller,omitempty"` // the name that the caller gave a named permit, see Request.Who
	Lease  time.Duration `json:"lease,omitempty"`  // the requested lease, if nobody renews it automatically
}

// Self describes this process, with a label. Host is "unknown" if the system does not
// tell its name.
func Self(label string) Client {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	return Client{Host: host, PID: os.Getpid(), Label: label, Version: Version}
}

// The share of a key without a rule, and the largest one.
const (
	DefaultShare = 100
	MaxShare     = 1000
)

// State is a snapshot of a semaphore.
type State struct {
	Limit   int
	Pinned  bool // an operator set the limit; it outlives idleness
	Paused  bool // an operator stopped all grants
	Used    int  // weight held
	Holders []Holder
	Waiters []Waiter // in the order they will be served; with keys, key by key

	Cooldown *Cooldown // nil: there is none
	Observed *Observed // nil: the limit is enforced; else it is only watched

	Auto *Auto // the report of the controller that set the limit within the last minute; nil: none did

	Pools []PoolState // by name

	Caps Caps // the most weight that a key without a rule may hold
	// Keys are empty without keys. First come the keys in turn, in their order, then those at their cap, then
	// the others. In the first two parts a key comes before those below it.
	Keys []KeyState

	// Turns are of the keys that wait, sorted by when each began to. With them one can compute which key is served next.
	Turns []Turn
}

// Turn is the place of those who wait at a key, or below it, in the order of the keys beside it. Those who want some of the
// same pools have one together.
type Turn struct {
	Key   Key    `json:"key"`
	Pools string `json:"pools,omitempty"` // names, see Pools.Names
	Lag   int64  `json:"lag,omitempty"`   // virtual time that has passed among the keys beside it since
}

// MaxCooldown is how long a cooldown lasts at the most.
const MaxCooldown = 10 * time.Minute

// Cooldown stops all grants for a while. The service that the permits are for has asked for that, with a 429 for example.
type Cooldown struct {
	Left time.Duration `json:"left"`
	By   Client        `json:"by"` // who said so last
}

// Observed tells of a limit that is only watched what it would have done since: see Options.Observe of package sema. Nobody
// waits meanwhile, so more than the limit may be held.
type Observed struct {
	Grants    int64 `json:"grants"`
	WouldWait int64 `json:"would_wait"` // so many of them would have waited
	ForLimit  int64 `json:"for_limit"`  // so many of those for the limit; the others for a cap or a pool alone
	Most      int   `json:"most"`       // the most weight that was held at once: what is more than the limit would have been queued
	Enough    int   `json:"enough"`     // with this limit 99 % would not have waited for it; above 32 it may be a sixteenth too high
}

// KeyState is one of the keys that share a semaphore.
// Weight held below a key counts for it, and so do tickets there.
type KeyState struct {
	Key     Key  `json:"key"`
	Held    int  `json:"held"`              // weight
	Waiting int  `json:"waiting"`           // tickets
	Cap     int  `json:"cap,omitempty"`     // the most weight that it may hold; 0: only the limit applies
	Share   int  `json:"share"`             // in the order among keys
	Ruled   bool `json:"ruled,omitempty"`   // an operator gave it a cap or a share of its own
	Full    bool `json:"full,omitempty"`    // the key's cap blocks its first waiter
	InTurn  bool `json:"in_turn,omitempty"` // its first waiter waits for weight above it, or for keys beside it
	Before  int  `json:"before"`            // how many keys beside it are served before it, if it waits and is not full
}

// PoolState is one of the pools beside the limit. A pool that an operator has ended is there, with Limit 0, as long
// as permits hold some of it.
type PoolState struct {
	Pool    string `json:"pool"`
	Limit   int    `json:"limit"`
	Used    int    `json:"used"`
	Waiting int    `json:"waiting"` // tickets that want some of it

	// Of a rate: Back come back in each Per, and one more can be taken in Next. Used has not come back yet; in a debt it is above Limit.
	Back int           `json:"back,omitempty"`
	Per  time.Duration `json:"per,omitempty"`  // 0: it is no rate
	Next time.Duration `json:"next,omitempty"` // 0: all are there
}

// Amount is how much there is of it.
func (p PoolState) Amount() Amount { return Amount{p.Limit, p.Back, p.Per} }

// Waiting is how many callers wait: those with tickets and those behind them in the
// same processes.
func (s State) Waiting() int {
	n := len(s.Waiters)
	for _, w := range s.Waiters {
		n += w.Behind
	}
	return n
}

// Holder is a client with a permit.
type Holder struct {
	ID        string        `json:"id"`
	Weight    int           `json:"weight"`
	Slot      int           `json:"slot"` // -1: none
	Token     int64         `json:"token"`
	Age       time.Duration `json:"age"`  // since the grant
	Left      time.Duration `json:"left"` // of the lease
	Revoked   bool          `json:"revoked,omitempty"`
	WouldWait bool          `json:"would_wait,omitempty"` // if the limit were not only watched, see Observed
	Key       Key           `json:"key,omitempty"`
	Takes     Pools         `json:"takes,omitempty"` // of pools
	Client    Client        `json:"client"`
}

// Waiter is a client with a ticket in the queue.
type Waiter struct {
	ID      string        `json:"id"`
	Weight  int           `json:"weight"`
	Waiting time.Duration `json:"waiting"`          // how long it has waited
	Behind  int           `json:"behind,omitempty"` // how many more callers wait in its process
	Key     Key           `json:"key,omitempty"`
	Takes   Pools         `json:"takes,omitempty"` // of pools
	Client  Client        `json:"client"`
}
