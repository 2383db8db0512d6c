package register

import "context"

// Row is a semaphore's row in a store. For an unused semaphore all fields but Now are
// zero.
type Row struct {
	Data    []byte   // see Next; the engine does not change it
	Version int64    // see Next; 0: there is no row
	At      int64    // see Next
	Now     int64    // the store's clock at the time of the read, in microseconds since 1970
	Heads   []string // see Next; empty if the store is no Listener
	Dead    []string // processes in Heads that certainly do not listen; may be empty
}

// Next is the new content of a row.
type Next struct {
	Data    []byte   // the semaphore
	Version int64    // larger than the version of the row before
	At      int64    // the time of the step, in microseconds; never goes back
	Until   int64    // the store may sweep the row once its clock has passed this; math.MaxInt64: never
	Heads   []string // listening processes at the head of the queue; at most 8
	Lazy    bool     // a crash of the store may lose this step without harm

	// Tell are messages to listening processes. The store sends them after it has
	// written the row, and if not Lazy, after the row is durable. Messages may be lost.
	Tell []Message

	Limit, Used, Waiting int // for Names, and for people who look at the store; Limit 0: there is no semaphore
}

// MaxText is the largest size of Message.Text in bytes.
const MaxText = 7900

// Message is sent to another process.
type Message struct {
	Process string // as in Listener.Listen
	Text    string // ASCII, at most MaxText bytes
}

// Store keeps rows. Its methods are safe for concurrent use, and return soon after their
// context has ended. The engine gives a step's calls half its shortest lease together,
// at least one second and at most five, and any other call five seconds.
//
// The engine reads NotExecuted, Temporary, Busy and Hint of an error of type *engine.Error,
// and sets its Op and Name. Busy says that the store answers, but has no place for the call
// yet: then the call is repeated for as long as it takes. The engine takes any other error
// for temporary, with unknown outcome.
type Store interface {
	// Read reads a row. It does not wait for writers.
	Read(ctx context.Context, name string) (Row, error)

	// Swap writes n if the row still has the given version and the store's clock is in
	// the range from … to. Version 0 means that there is no row. ok reports whether it
	// wrote, and now is the store's clock at that moment.
	Swap(ctx context.Context, name string, version int64, n Next, from, to int64) (now int64, ok bool, err error)

	// Names lists the rows with a Limit whose Until is later than the store's clock, in any order.
	Names(ctx context.Context) ([]string, error)

	// Sweep removes the rows whose Until has passed. An engine calls it at most once a minute.
	Sweep(ctx context.Context) error
}

// Updater is an optional ability of a Store.
type Updater interface {
	// Update locks a row, calls f with it, and writes the result of f. Row.Now is a
	// reading of the clock after the call of Update. If f fails, Update writes nothing
	// and returns the error of f unchanged. f takes some microseconds.
	//
	// first marks a step that renews or releases a permit. If processes queue for the
	// row's lock, such an update goes before the others, so that many asking clients
	// cannot cost a holder its permit.
	Update(ctx context.Context, name string, first bool, f func(Row) (Next, error)) error
}

// Listener is an optional ability of a Store.
type Listener interface {
	// Listen receives the messages to a process until ctx ends, and calls receive with
	// each text. It calls up when it begins to listen and down when it ceases, and
	// reconnects by itself. While it listens, the process is in no Row.Dead; an engine
	// that finds its process there ends ctx and calls Listen again. Listen makes one of
	// these calls at a time; they do not block.
	Listen(ctx context.Context, process string, receive func(text string), up, down func())
}
