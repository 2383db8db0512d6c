package register

import "context"

// Row is what a store has of a semaphore. The zero Row, but for Now, is that of one
// which nobody has used.
type Row struct {
	Data    []byte   // see Next; the engine does not change it
	Version int64    // see Next; 0: there is no row
	At      int64    // see Next
	Now     int64    // the store's clock when the row was read, in microseconds since 1970
	Heads   []string // see Next; empty where the store is no Listener
	Dead    []string // those of Heads that certainly do not listen; may be empty
}

// Next is what a row is to be from now on.
type Next struct {
	Data    []byte   // the semaphore
	Version int64    // larger than that of the row before
	At      int64    // the time of the step, in microseconds; never falls
	Until   int64    // the row matters until the store's clock is there; math.MaxInt64: for ever
	Heads   []string // processes that are told something soon, and listen; at most 8
	Lazy    bool     // nobody is harmed if a crash of the store forgets this step

	// Tell is for processes that listen. It is to be told when the row is there, and
	// if not Lazy, when no crash can forget it any more. That it gets lost is no error.
	Tell []Message

	Limit, Used, Waiting int // for people who look at the store
}

// MaxText is the most bytes of a Message's Text.
const MaxText = 7900

// Message is something to be told to a process.
type Message struct {
	Process string // as in Listener.Listen
	Text    string // ASCII, at most MaxText bytes
}

// Store keeps rows. Its methods are safe for concurrent use. They return soon after
// their context has ended, which is not that of any caller: the engine gives them five seconds, or half a lease if that is less.
//
// An error of type *engine.Error says by NotExecuted, Temporary and Hint what it means; its Op
// and Name are not read. Any other error is temporary, and leaves open what was done.
type Store interface {
	// Read reads a row, without waiting for those who write it.
	Read(ctx context.Context, name string) (Row, error)

	// Swap writes a row if it still has a version, 0 being that of no row, and if the store's clock
	// is in the range from … to. It reports whether it did, and if so what the clock
	// showed then.
	Swap(ctx context.Context, name string, version int64, n Next, from, to int64) (now int64, ok bool, err error)

	// Names lists the rows whose Until is later than the store's clock, in any order.
	Names(ctx context.Context) ([]string, error)

	// Sweep removes rows whose Until is over. It is called once in a while.
	Sweep(ctx context.Context) error
}

// Updater is a further ability of a Store.
type Updater interface {
	// Update calls f with a row that nobody else writes meanwhile, and writes what f
	// returns. Row.Now was read after Update was called. If f fails, nothing is written, and its error is returned as
	// it is. f computes, for some microseconds.
	//
	// first says that a holder depends on it. Where processes queue for a row, such an update does not wait behind the
	// others: a crowd that asks must not cost a holder its permit.
	Update(ctx context.Context, name string, first bool, f func(Row) (Next, error)) error
}

// Listener is a further ability of a Store.
type Listener interface {
	// Listen receives what others tell a process, until ctx ends. It calls up when
	// it begins to hear, down when it ceases to, and makes the connection again by
	// itself. While it hears, the process is in no Row.Dead; one that finds itself there ends ctx, and listens anew. Calls come one at a time, and do not block.
	Listen(ctx context.Context, process string, heard func(text string), up, down func())
}
