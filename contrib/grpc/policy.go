package semagrpc

import "sema/internal/gate"

// Policy says what happens to a call when the engine does not answer, which an
// sema.ErrEngine tells. That nothing is free is an answer. The zero value is
// FailClosed.
//
// With FailClosed each call asks, for three seconds at most. With the others an
// engine that says nothing to a call for AnswerWithin is away. From then on no call
// waits for it: a probe in the background asks, at once and then in each second, and
// when it is answered calls ask again. That goes for all calls of a Limiter, whatever
// their key.
//
// A call that was queued before goes on waiting. If its wait ends while the engine is
// away, it does what the policy says. A call that has its permit keeps it until its
// lease ends, whatever the policy; then it is cancelled.
type Policy = gate.Policy

// The policies.
const (
	// FailClosed fails the call with Unavailable.
	FailClosed Policy = gate.FailClosed

	// FailOpen lets the call through without a limit.
	FailOpen Policy = gate.FailOpen

	// FailLocal lets calls through without a permit, at most Places at once of a
	// Limiter, and PlacesPerKey of each key; others wait for one of them to end, unless
	// the limit says NoWait. As many as that can run beside those that hold a permit.
	FailLocal Policy = gate.FailLocal
)

// MaxPlaces is the most that FailLocal can let through at once.
const MaxPlaces = gate.MaxPlaces

// Observer is told what nobody else is told. Fields may be nil. The functions are
// called from the goroutine at hand, and must not block.
type Observer struct {
	// EngineFailed: the engine did not answer for a call. Policy decided what became
	// of it.
	EngineFailed func(EngineFailed)

	// Abandoned: the garbage collector found a client's stream that had not ended. It
	// has been cancelled, and its permit given back.
	Abandoned func(Abandoned)
}

// EngineFailed is what Observer.EngineFailed is told.
type EngineFailed struct {
	Method string // the full name
	Key    string // as Limit.Key has it; the name of Limit.Semaphore
	Err    error  // what the engine said, to this call or to the last that asked it

	// Admitted: the call goes on without a permit. Local: among those that FailLocal
	// counts.
	Admitted, Local bool
}

// Abandoned is what Observer.Abandoned is told.
type Abandoned struct {
	Method string // the full name
	Key    string // as for EngineFailed
}
