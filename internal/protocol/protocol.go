// Package protocol is what a client, which is package sema, and an engine, which stores
// semaphores, say to each other.
//
// A client uses one semaphore through a [Session]. It sends a [Call] with its
// requests: asks, renewals, releases. The engine executes a call as one step,
// atomically towards all other clients, and answers with a [Reply]. If a step of
// another client changes a client's tickets, the engine sends that client a
// [Notification]. A notification may be lost: the engine still has the facts, and
// a client that asks again receives them.
//
// Package enginetest tests the promises that every engine keeps. An engine on another store is
// made with package register.
package protocol

import (
	"context"
	"reflect"
	"time"

	"sema/engine"
)

// Engine stores semaphores. Implementations are safe for concurrent use.
//
// An engine stores and decides; it does not wait. The client waits, renews leases,
// repeats failed calls and notices lost permits, for all engines alike.
type Engine interface {
	// Open prepares the use of one semaphore by one client. It does no I/O.
	// The engine calls notify from any goroutine, possibly during a Step, but not
	// while it holds a lock that Step or Close takes. notify does not block.
	Open(name string, who engine.Client, notify func(Notification)) (Session, error)

	// List returns the names of all semaphores that exist, sorted.
	List(ctx context.Context) ([]string, error)

	// Close closes all sessions and frees the resources that the engine opened. It
	// notifies each session with Closed. Resources that were passed to the engine,
	// such as a Redis client, stay open.
	Close() error
}

// Session is one client's access to one semaphore.
type Session interface {
	// Client is the first part of the ids of this session's permits. It is unique
	// among all sessions and has only lower-case letters, digits and dots.
	Client() string

	// Step executes a call as one step. A step first removes the permits whose
	// lease has ended, and finally grants free weight to the head of the queue. The
	// answers are in the order of the requests. The caller makes one Step at a time.
	//
	// Errors are of type *engine.Error. Step returns within a quarter of a second of
	// the end of ctx, though the step may still happen then; ctx is often a *Timed.
	// The caller may reuse the memory of c.Requests when Step has returned, so an
	// engine that continues then needs a copy. Step never repeats a call with
	// unknown outcome: the client does that, under the same ids.
	Step(ctx context.Context, c Call) (Reply, error)

	// State is a snapshot. An unused semaphore has limit 0. An engine may assemble
	// the snapshot of a large semaphore from several moments. A client that holds
	// or waits during all of them is then listed exactly once.
	State(ctx context.Context) (engine.State, error)

	// Close frees the session's local resources. It releases no permit.
	Close() error
}

// Lasting is a further ability of a Session.
type Lasting interface {
	// Lasting reports whether a ticket lives as long as its process. If so, the
	// client asks again when it is notified, and once a lease. A permit that is handed over then
	// starts with a whole lease, and its Grant says how long that is.
	Lasting() bool
}

// Living is a further ability of a Session, of an engine that may be so busy that a call
// waits for seconds. The client then asks whether the engine lives, before it gives up.
type Living interface {
	// Alive reports whether the engine does anything for any client. It returns soon
	// after ctx has ended. It is called beside Step.
	Alive(ctx context.Context) bool
}

// Sees looks again and again until it sees something, or ctx ends.
func Sees(ctx context.Context, look func() bool) bool {
	for again := time.NewTicker(lookEvery); ; {
		select {
		case <-ctx.Done():
			again.Stop()
			return false
		case <-again.C:
		}
		if look() {
			again.Stop()
			return true
		}
	}
}

const lookEvery = 50 * time.Millisecond

// Totals sum up the outcome of a client's holds since its session began. They only
// grow. A hold is added when its permit is released: weight 2 for one second counts
// as two seconds.
type Totals struct {
	Good   int64 // weight × microseconds of the holds without overload
	Bad    int64 // weight × microseconds of the holds that saw the protected resource overloaded
	Waited int64 // how many grants had to wait
}

// Reporting is a further ability of a Session.
type Reporting interface {
	// Reports returns the reports of the semaphore's sessions and controllers within
	// the last minute. Errors are those of State.
	Reports(ctx context.Context) (Reports, error)
}

// Reports are the reports about one semaphore.
type Reports struct {
	Limit  int               // as stored; 0: there is no semaphore
	Pinned bool              // an operator set it
	Totals map[string]Totals // by session
	Auto   engine.Auto       // the last controller's report; zero: no controller sets the limit
}

// Validate checks that e is neither nil nor a nil pointer. The error is an
// *engine.ArgumentError with Package set to pkg ("" means "sema").
func Validate(pkg string, e Engine) error {
	if v := reflect.ValueOf(e); !v.IsValid() || v.Kind() == reflect.Pointer && v.IsNil() {
		return &engine.ArgumentError{Package: pkg, What: "engine", Value: nil, Want: "an engine, such as redisengine.New or memengine.New make"}
	}
	return nil
}
