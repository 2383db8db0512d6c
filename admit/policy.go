// Package admit lets requests, calls and jobs run: by a permit, or by policy while the engine of
// their semaphore does not answer. Users of packages semahttp and semagrpc need a [Policy]:
//
//	&semahttp.Handler{Next: app, Limit: limit, Outage: admit.Local(5, 1)}
//
// The rest is for authors of such packages: a [Gate] for what waits for a permit and is refused,
// [Jobs] for what goes back to a queue.
package admit

import (
	"fmt"
	"time"

	"sema"
)

// Policy says what happens to a request when the engine does not answer. Below, a call of gRPC is a
// request as well. The zero value is Closed. An engine that says that nothing is free answers: that
// is sema.ErrBusy, and no outage.
//
// With Closed each request asks the engine. With the others, an engine that says nothing to a
// request for 100 ms is asked once more, by a probe; see After. If it says nothing to that for 100 ms
// either, it is away. Time in which this process could not run does not count. From then on no
// request waits for the engine, and a probe asks in each second. When one is answered, requests ask
// again. The requests of one Transport, Handler or Limiter share what is known of the engine, so
// their semaphores should have one engine. The begin and the end of an outage are told: see Outage.
//
// A request that was queued before the outage goes on waiting. If its wait ends while the engine is
// away, the policy decides. A request that has its permit keeps it until its lease ends, with
// every policy; then it is cancelled.
type Policy struct {
	kind   kind
	places int           // of local
	perKey int           // of one name; 0: all
	after  time.Duration // 0: the default
}

// kind says which requests run while the engine does not answer.
type kind uint8

const (
	closed kind = iota // none
	open               // all
	local              // those that find a place
)

var (
	// Closed fails the request.
	Closed = Policy{}

	// Open lets the request run without a limit.
	Open = Policy{kind: open}
)

// maxPlaces bounds the places of Local.
const maxPlaces = 1_000_000

// quickAnswer is the default of After, unless requests fail closed.
const quickAnswer = 100 * time.Millisecond

// Local lets requests run without a permit, at most places at once of a Transport, Handler or
// Limiter, whatever they weigh: 1 … 1,000,000. Others wait for one of them to end, as long as they would
// wait for a permit. A request that runs with a permit counts as one of them, also for its key: so with
// permits and without, no more than places run, unless more have permits. These requests may
// run beside those of other processes that hold a permit, and beside new ones when the engine is back.
//
// perKey is how many of the places one key may have: 0 … places; 0 for all of them. The key is
// the name of a semahttp.Limiter, or the key of a gRPC call: all its names, so a user's places are not counted
// for the organisation.
//
// Another value is refused where the Policy is used: every request fails with a *sema.ArgumentError.
func Local(places, perKey int) Policy { return Policy{kind: local, places: places, perKey: perKey} }

// After is the policy with another time until an engine counts as away. For so long the engine tells a request
// neither that it is admitted nor that it waits, and then tells the probe nothing.
// Default: 0, 100 ms; with Closed three seconds. More than three seconds counts as three. It may not be negative: see Local.
func (p Policy) After(d time.Duration) Policy {
	p.after = d
	return p
}

// String is how a program writes the policy, such as "admit.Local(5, 1)".
func (p Policy) String() string {
	s := [...]string{"admit.Closed", "admit.Open", fmt.Sprintf("admit.Local(%d, %d)", p.places, p.perKey)}[p.kind]
	if p.after != 0 {
		s += fmt.Sprintf(".After(%v)", p.after)
	}
	return s
}

func (p Policy) check() error {
	invalid := func(what string, value any, want string) error {
		return &sema.ArgumentError{Package: "admit", What: what, Value: value, Want: want}
	}
	switch {
	case p.after < 0:
		return invalid("time without an answer", p.after, "0 for the default, or more")
	case p.kind == local && (p.places < 1 || p.places > maxPlaces):
		return invalid("places", p.places, fmt.Sprintf("1 … %d", maxPlaces))
	case p.perKey < 0 || p.perKey > p.places:
		return invalid("places per key", p.perKey, fmt.Sprintf("0 … %d, the number of places", p.places))
	}
	return nil
}
