// Package outage says which requests and calls run while the engine of their semaphore does not
// answer. Packages semahttp and semagrpc take a Policy:
//
//	&semahttp.Handler{Next: app, Limit: limit, Outage: outage.Local(5, 1)}
//
// An engine that says that nothing is free answers: that is sema.ErrBusy, and no outage.
package outage

import (
	"time"

	"sema/internal/gate"
)

// Policy says what happens to a request when the engine does not answer. Below, a call of gRPC is a
// request as well. The zero value is Closed.
//
// With Closed each request asks the engine. With the others, an engine that says nothing to a
// request for 100 ms is away; see After. From then on no request waits for it. A probe in the
// background asks, at once and then in each second. When it is answered, requests ask again. The
// requests of one Transport, Handler or Limiter share what is known of the engine, so their
// semaphores should have one engine.
//
// A request that was queued before the outage goes on waiting. If its wait ends while the engine is
// away, the policy decides. A request that has its permit keeps it until its lease ends, with
// every policy; then it is cancelled.
type Policy gate.Policy

var (
	// Closed fails the request.
	Closed = Policy{}

	// Open lets the request run without a limit.
	Open = Policy(gate.Open)
)

// Local lets requests run without a permit, at most places at once of a Transport, Handler or
// Limiter, whatever they weigh: 1 … 1,000,000. Others wait for one of them to end, as long as they would
// wait for a permit. These requests may run beside others that hold a permit.
//
// perKey is how many of the places one key may have: 0 … places; 0 for all of them. The key is
// the name of a semahttp.Limiter, or the key of a gRPC call: all its names, so a user's places are not counted
// for the organisation.
//
// Another value is refused where the Policy is used: every request fails with a *sema.ArgumentError.
func Local(places, perKey int) Policy { return Policy(gate.Local(places, perKey)) }

// After is the policy with another time for which the engine may say nothing to a request before it
// counts as away: neither that the request is admitted, nor that it waits. Default: 0, 100 ms; with
// Closed three seconds. More than three seconds counts as three. It may not be negative: see Local.
func (p Policy) After(d time.Duration) Policy { return Policy(gate.Policy(p).After(d)) }

// String is how a program writes the policy, such as "outage.Local(5, 1)".
func (p Policy) String() string { return gate.Policy(p).String() }
