package sematest

import (
	"context"
	"errors"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"sema/engine"
	"sema/internal/protocol"
)

// Always is for Fault.Times.
const Always = -1

// Fault is something that happens to calls on their way to the engine or back.
type Fault struct {
	// Semaphore is the name of the one whose calls are hit. Default: of all.
	Semaphore string

	// On is the operation whose calls are hit. Default: all calls. Otherwise one of
	//
	//	acquire  acquires a permit, or keeps a place in the queue
	//	renew    renews a permit, or resumes one
	//	release  releases a permit, or leaves the queue
	//	operate  is an operator's: set, unset, pause, unpause, revoke, release, remove
	//	state    looks: State
	//
	// A call carries the requests of several callers. It is hit as a whole if one of its
	// requests is of the operation.
	On string

	// Times is how many calls are hit; Always: until it is ended. Default 1.
	Times int

	// Delay is how long a call is on its way before it is carried out, or fails.
	// A call whose context ends meanwhile fails as one that got no answer, and
	// is not carried out.
	Delay time.Duration

	// Err is what the call fails with. Nil: it does not fail. Package sema repeats
	// a call that failed with a Temporary error, for three seconds and longer: to
	// be seen by an Acquire, such a fault has to last. See Unreachable, NoAnswer
	// and Full for what the real engines say.
	Err *engine.Error

	// Executed says that the call is carried out, and fails then: its answer is
	// lost. Err.NotExecuted must not be set.
	Executed bool
}

// Unreachable is the error of an engine that nobody can connect to.
func Unreachable() *engine.Error {
	return &engine.Error{
		Op: "step", NotExecuted: true, Temporary: true, Hint: "check that the server runs and the address is right",
		Err: &net.OpError{Op: "dial", Net: "tcp", Addr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 6379}, Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)},
	}
}

// NoAnswer is the error of a call whose outcome is unknown: it timed out.
func NoAnswer() *engine.Error {
	return &engine.Error{
		Op: "step", Temporary: true, Hint: "check that the server runs and is not overloaded",
		Err: &net.OpError{Op: "read", Net: "tcp", Addr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 6379}, Err: os.ErrDeadlineExceeded},
	}
}

// Full is the error of a server without memory. It is not temporary: an Acquire
// fails with it at once.
func Full() *engine.Error {
	return &engine.Error{
		Op: "step", NotExecuted: true, Hint: "the server's memory is full: raise its maxmemory; releases still work",
		Err: errors.New("OOM command not allowed when used memory > 'maxmemory'"),
	}
}

// Inject has a fault happen to the calls that are made from now on. Of several
// faults a call is hit by the one that was injected first. end ends the fault;
// what it delays goes on at once. A fault that contradicts itself ends the test.
func (e *Engine) Inject(f Fault) (end func()) {
	e.tb.Helper()
	switch {
	case f.Times < Always, f.Delay < 0:
		e.tb.Fatalf("sematest: fault %+v: want Times of at least Always and a Delay of at least 0", f)
	case f.On != "" && !slices.Contains(operations, f.On):
		e.tb.Fatalf("sematest: fault on %q: want no On, or %s", f.On, strings.Join(operations, ", "))
	case f.Executed && (f.Err == nil || f.Err.NotExecuted):
		e.tb.Fatalf("sematest: fault %+v: Executed wants an error that does not say NotExecuted", f)
	}
	over := make(chan struct{})
	i := &injected{Fault: f, over: over, end: sync.OnceFunc(func() { close(over) })}
	if i.Times == 0 {
		i.Times = 1
	}
	if f.Err != nil {
		i.Err = new(*f.Err) // the caller may change it
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.faults = append(e.faults, i)
	return func() {
		e.mu.Lock()
		e.faults = slices.DeleteFunc(e.faults, func(x *injected) bool { return x == i })
		e.mu.Unlock()
		i.end()
	}
}

// injected is a fault at work. A nil one does nothing.
type injected struct {
	Fault // Times is what is left of it; guarded by the engine's lock
	over  chan struct{}
	end   func() // closes over
}

// fault is what happens to a call; no requests mean State.
func (e *Engine) fault(name string, requests []protocol.Request) *injected {
	e.mu.Lock()
	defer e.mu.Unlock()
	for i, f := range e.faults {
		if f.Semaphore != "" && f.Semaphore != name || !meant(f.On, requests) {
			continue
		}
		if f.Times > 0 {
			if f.Times--; f.Times == 0 {
				e.faults = slices.Delete(e.faults, i, i+1)
			}
		}
		return f
	}
	return nil
}

const acquire, renew, release, operate, state = "acquire", "renew", "release", "operate", "state"

// operations are the values of Fault.On.
var operations = []string{acquire, renew, release, operate, state}

// meant reports whether a fault on an operation hits a call with these requests.
func meant(on string, requests []protocol.Request) bool {
	return on == "" || on == state && requests == nil ||
		slices.ContainsFunc(requests, func(r protocol.Request) bool { return operationOf(r.Kind) == on })
}

func operationOf(k protocol.Kind) string {
	switch k {
	case protocol.Ask:
		return acquire
	case protocol.Renew:
		return renew
	case protocol.Release:
		return release
	}
	return operate
}

// before is the fault on a call's way to the engine. An error says that it never
// arrives.
func (f *injected) before(ctx context.Context, op string) error {
	if f == nil {
		return nil
	}
	if f.Delay > 0 {
		after := time.NewTimer(f.Delay)
		defer after.Stop()
		select {
		case <-after.C:
		case <-f.over:
			return nil
		case <-ctx.Done():
			return &engine.Error{Op: op, Temporary: true, Hint: "check that the server runs and is not overloaded", Err: ctx.Err()}
		}
	}
	if f.Err != nil && !f.Executed {
		return new(*f.Err)
	}
	return nil
}

// after is the fault on the answer's way back.
func (f *injected) after() error {
	if f == nil || !f.Executed {
		return nil
	}
	return new(*f.Err)
}
