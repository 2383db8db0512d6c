package sema

import "sema/engine"

// Engine is where semaphores live; see package engine. Its methods:
//
//	Open(string, engine.Client, func(engine.Notification)) (engine.Session, error)
//	List(context.Context) ([]string, error) // the names of all semaphores that exist, sorted
//	Close() error                           // what was handed to the engine, such as a Redis client, stays open
type Engine = engine.Engine

// State is a snapshot of a semaphore. Its fields and methods:
//
//	Limit   int
//	Pinned  bool         // an operator set the limit; it outlives idleness
//	Paused  bool         // an operator stopped all grants
//	Used    int          // weight held
//	Holders []Holder
//	Waiters []Waiter     // in the order they will be served; with keys, key by key
//	Auto    *engine.Auto // a controller found the limit, within the last minute; nil: none did
//	PerKey  int          // the most weight that a key without a rule may hold; 0: no such cap
//	Keys    []KeyState   // of a semaphore with keys: those in turn, those at their cap, the others
//	Waiting() int        // callers that wait: with tickets, and behind them in their processes
type State = engine.State

// Holder is a client with a permit. Its fields:
//
//	ID      string
//	Weight  int
//	Slot    int           // -1: none
//	Token   int64
//	Age     time.Duration // since the grant
//	Left    time.Duration // of the lease
//	Revoked bool
//	Key     string        // "" without keys
//	Client  engine.Client // host, process and label
type Holder = engine.Holder

// Waiter is a client with a ticket in the queue. Its fields:
//
//	ID      string
//	Weight  int
//	Waiting time.Duration // since it came
//	Behind  int           // so many more callers wait in its process
//	Key     string        // "" without keys
//	Client  engine.Client // host, process and label
type Waiter = engine.Waiter

// KeyState is what State says of a key. Its fields:
//
//	Key     string
//	Held    int  // weight
//	Waiting int  // tickets
//	Cap     int  // the most weight that it may hold; 0: the limit alone
//	Share   int  // in the order among keys
//	Ruled   bool // an operator gave it a cap or a share of its own
//	Full    bool // its first waiter waits for weight of the key's own
//	Before  int  // how many keys go before it, if it waits and is not full
type KeyState = engine.KeyState

// ArgumentError says which value was refused and what would have been taken. Nothing was
// changed. Its fields and methods:
//
//	Package string // the package that refused the value; "" means "sema"
//	What    string // which value: "name", "limit", "lease", …
//	Value   any    // the value as it was given
//	Want    string // what the value would have to be
//	Error() string
type ArgumentError = engine.ArgumentError
