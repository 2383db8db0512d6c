package sema

import (
	"sema/engine"
	"sema/internal/protocol"
)

// Engine is where semaphores live; see package engine. Its methods:
//
//	Open(string, engine.Client, func(protocol.Notification)) (protocol.Session, error)
//	List(context.Context) ([]string, error) // the names of all semaphores that exist, sorted
//	Close() error                           // what was handed to the engine, such as a Redis client, stays open
type Engine = protocol.Engine

// State is a snapshot of a semaphore. Its fields and methods:
//
//	Limit   int
//	Pinned  bool         // an operator set the limit; it outlives idleness
//	Paused  bool         // an operator stopped all grants
//	Used    int          // weight held
//	Holders []engine.Holder
//	Waiters []engine.Waiter // in the order they will be served; with keys, key by key
//	Cooldown *engine.Cooldown // all grants are stopped for a while, see Permit.RetryAfter; nil: they are not
//	Observed *engine.Observed // of a limit that is only watched, see Options.Observe; nil: it is enforced
//	Auto    *engine.Auto // a controller found the limit, within the last minute; nil: none did
//	Pools   []engine.PoolState // by name; see Options.Pools
//	Caps    Caps         // the most weight that a key without a rule may hold
//	Keys    []engine.KeyState // of a semaphore with keys: those in turn, those at their cap, the others
//	Turns   []engine.Turn // of a semaphore with keys: the order of service among those that wait
//	Waiting() int        // callers that wait: with tickets, and behind them in their processes
type State = engine.State

// Caps are what each key without a cap of its own may hold, by how many names it has: {20, 4} is 20 for
// each organisation, and 4 for each user of one. 0 is no such cap. Its methods:
//
//	Validate() error // an *ArgumentError if one is not 0 … engine.MaxLimit
//	List() []int     // up to the last that is not 0
//	String() string  // "20,4"
type Caps = engine.Caps

// Pools are amounts of pools, as a text such as "gpu=8,licence=4"; see Options.Pools. Package engine makes one of a
// map, or of a text from a configuration, with NewPools and ParsePools. Its methods:
//
//	All() iter.Seq2[string, int] // names and amounts, by name
//	Amount(string) engine.Amount // how much there is of a pool: at once, and of a rate what comes back; zero: it is not among them
//	Has(string) (int, bool) // at once, and whether it is among them
//	Map() map[string]int
//	MarshalJSON() ([]byte, error) // an object: {"gpu": 8, "licence": 4}
//	Names() string                // "gpu,licence"
//	Of(string) int                // the amount of a pool; 0: it is not among them
//	UnmarshalJSON([]byte) error
//	Validate(int) error // an *ArgumentError; the number is the least amount
//	With(Pools) (Pools, error) // with other amounts for some; 0 takes one out
type Pools = engine.Pools

// ArgumentError says which value was refused and what would have been taken. Nothing was
// changed. Its fields and methods:
//
//	Package string // the package that refused the value; "" means "sema"
//	What    string // which value: "name", "limit", "lease", …
//	Value   any    // the value as it was given
//	Want    string // what the value would have to be
//	Error() string
type ArgumentError = engine.ArgumentError
