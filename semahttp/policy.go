package semahttp

import "sema/internal/gate"

// Policy says what happens to a request when the engine does not answer, which
// a sema.ErrEngine tells. That nothing is free, sema.ErrBusy, is an
// answer. The zero value is FailClosed.
//
// With FailClosed each request asks, for three seconds at most. With the others an
// engine that says nothing to a request for AnswerWithin is away. From then on no
// request waits for it: a probe in the background asks, at once and then in each
// second, and when it is answered requests ask again. That goes for all requests of
// a Transport or Handler, whatever their limiter, so their limiters should have one engine.
//
// A request that was queued before goes on waiting. If its wait ends while the
// engine is away, it does what the policy says. A request that has its permit keeps
// it until its lease ends, whatever the policy; then it is cancelled.
type Policy = gate.Policy

// The policies.
const (
	// FailClosed fails the request.
	FailClosed Policy = gate.FailClosed

	// FailOpen lets the request through without a limit.
	FailOpen Policy = gate.FailOpen

	// FailLocal lets requests through without a permit, at most Places at once of
	// a Transport or Handler, and PlacesPerKey of each limiter's name; others wait for
	// one of them to end. So many can run beside those that hold a permit.
	FailLocal Policy = gate.FailLocal
)

// MaxPlaces is the most that FailLocal can let through at once.
const MaxPlaces = gate.MaxPlaces

// check says what a request cannot be admitted under.
func check(o gate.Options) error {
	if o.Wait < 0 {
		return invalid("Wait", o.Wait, "0 for the default, or more")
	}
	return o.Check("semahttp")
}
