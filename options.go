package sema

import (
	"cmp"
	"fmt"
	"time"

	"sema/engine"
	"sema/internal/client"
	"sema/internal/enum"
)

// The ranges of what callers may choose.
const (
	MaxLimit  = engine.MaxLimit // of a limit, and so of a weight
	MaxName   = engine.MaxName  // bytes in a name
	MaxLabel  = 255             // bytes in a label
	MaxPasses = 1000            // of Options.Passes
	MinLease  = 100 * time.Millisecond
	MaxLease  = 366 * 24 * time.Hour
	NoRenewal = time.Duration(-1) // for Options.Renew
)

// Policy says what happens when the stored limit is not the one given to New. A limit
// that an operator set, with Operator.SetLimit or at a terminal, holds in any case.
type Policy uint8

// The policies.
const (
	// Newest stores the given limit with this Semaphore's first acquisition, once: what
	// the process says holds that was started last, and so in the end what the
	// newest deployment says. Those with another limit go by it, and report the
	// difference to Observer.LimitDiffers.
	Newest Policy = iota
	// Adopt goes by the stored limit and reports the difference to
	// Observer.LimitDiffers. The given one counts if none is stored.
	Adopt
	// Refuse fails Acquire with a *LimitError.
	Refuse
)

// String is the constant's name; Policy(42) for a value that is none of them.
func (p Policy) String() string { return enum.Name("Policy", p, "Newest", "Adopt", "Refuse") }

// Options of a Semaphore. The zero value of each field is its default.
type Options struct {
	// Lease is how long a permit lives unless renewed, MinLease … MaxLease.
	// A crashed holder's permit comes back after this time. Default 30 s.
	Lease time.Duration

	// Renew is how often a held permit is renewed. Default: a third of the
	// lease less the margin, so that two renewals may fail. It must be less
	// than Lease less Margin. NoRenewal: the permit ends with its lease,
	// unless Permit.Renew is called.
	Renew time.Duration

	// Margin is how long before the lease can have ended the permit's context
	// ends: the time the holder has to stop. At most a quarter of the lease.
	// Default: a tenth of the lease, at most one second.
	Margin time.Duration

	// OnConflict says what to do about a stored limit that differs.
	// Default Newest.
	OnConflict Policy

	// PerKey is the most weight that each key may hold that has no rule of its own, see
	// Semaphore.For: "two per tenant, twenty in all". It is stored with the limit, and
	// OnConflict goes for both: 0 … MaxLimit. Acquisitions without a key have no such cap.
	// Default: 0, the limit alone.
	PerKey int

	// Unfair lets an acquisition take free weight although others wait, as
	// java.util.concurrent.Semaphore does by default. One that has to wait
	// is queued like all others.
	Unfair bool

	// MaxWaiting is how many callers of a key may wait: another one fails at once, with a
	// *BusyError. Default: 0, as many as come. At most MaxLimit. It bounds the wait of those
	// that are served: choose the limit × the longest wait ÷ the time of the work, and at least the
	// limit, so that no permit lies idle. A process counts its own callers, and the tickets of
	// other processes as the engine last reported them; so several processes together may
	// have more that wait, by at most MaxWaiting each.
	MaxWaiting int

	// Slots gives every permit a slot: an index 0 … limit-1 that no other
	// live permit with a slot has; for "which API key, which GPU, which port".
	Slots bool

	// Detached permits outlive the process and Close; Resume takes them up
	// again. Without it an engine may take a permit back as soon as it sees
	// that the process died.
	Detached bool

	// Patient lets a wait last through an engine that is away, for as long as the
	// wait's context lasts: one that has a place in the queue, and one that the
	// engine has not answered yet. Observer.RenewFailed tells of each attempt. A place
	// goes by how long its caller has waited, so an engine that comes back knows it again.
	// Default: a wait fails once the engine has been away for a lease, and for three
	// seconds if it has no place yet. TryAcquire and what the engine refuses for good
	// fail as without Patient.
	Patient bool

	// MaxHold is how long a permit may be held: then its contexts end, with
	// cause ErrHeldTooLong, and one margin later it comes back, released or not.
	// At least MinLease. Default: as long as its holder likes.
	MaxHold time.Duration

	// Keep is how long a released permit stays in this process for its next
	// caller, if nobody here waits for it and no other client does. An Acquire
	// within that time takes it without asking the engine, which makes it some
	// hundred times as fast. The price: Release returns before the engine knows;
	// other clients see the weight as held for that time, or until they ask for it; and a
	// process that ends without Close leaves the permit to its lease, as a crashed
	// holder does. So: for long-lived processes, and a few milliseconds are
	// enough. At most a sixth of the lease. Default: 0, Release gives back at once.
	// With NoRenewal, MaxHold or Detached it has to be 0.
	Keep time.Duration

	// Passes is how often in a row a released permit goes to the next caller
	// of this process although callers of other clients came earlier. That is
	// several times as fast as one call for each, and makes the others wait as
	// much longer. While no other client waits permits are passed on within the
	// process in any case, which is no unfairness. 0 … MaxPasses. Default 0: first
	// come, first served across all processes, to within a message's delay.
	Passes int

	// NoteStack notes where each permit is acquired, for Observer.Abandoned. It
	// costs about a microsecond for each. Default: not noted.
	NoteStack bool

	// Adapt, if not nil, has the semaphore find its limit between two bounds. The
	// limit given to New is where it starts, and OnConflict is Adopt. Close ends
	// what it does in the background. Default: the limit is what it was set to.
	Adapt *Adapt

	// Label is shown to operators beside host and process id, at most
	// MaxLabel bytes. Label has one for a single acquisition. Default: none.
	Label string

	// Observer is told what happens. Default: nobody.
	Observer Observer
}

func (o Options) withDefaults() Options {
	if o.Lease == 0 {
		o.Lease = 30 * time.Second
	}
	if o.Margin == 0 {
		o.Margin = min(o.Lease/10, time.Second)
	}
	if o.Renew == 0 {
		o.Renew = (o.Lease - o.Margin) / 3
	}
	if o.Adapt != nil && o.OnConflict == Newest {
		o.OnConflict = Adopt
	}
	return o
}

func (o Options) validate() error {
	if err := engine.ValidateRange("", "lease", o.Lease, MinLease, MaxLease); err != nil {
		return err
	}
	switch {
	case o.Margin < 0 || o.Margin > o.Lease/4:
		return &ArgumentError{What: "margin", Value: o.Margin, Want: fmt.Sprintf("0 … %v, a quarter of the lease", o.Lease/4)}
	case o.Renew != NoRenewal && (o.Renew <= 0 || o.Renew >= o.Lease-o.Margin):
		return &ArgumentError{What: "renewal interval", Value: o.Renew, Want: fmt.Sprintf("more than 0 and less than %v, the lease less the margin", o.Lease-o.Margin)}
	case o.MaxHold != 0 && o.MaxHold < MinLease:
		return &ArgumentError{What: "longest hold", Value: o.MaxHold, Want: fmt.Sprintf("0, or at least %v", MinLease)}
	case o.Keep < 0 || o.Keep > o.Lease/6:
		return &ArgumentError{What: "time to keep", Value: o.Keep, Want: fmt.Sprintf("0 … %v, a sixth of the lease", o.Lease/6)}
	case o.Keep > 0 && (o.Renew == NoRenewal || o.MaxHold > 0 || o.Detached):
		return &ArgumentError{What: "time to keep", Value: o.Keep, Want: "0 with NoRenewal, MaxHold or Detached: such permits are each caller's own"}
	case o.Adapt != nil && o.OnConflict == Refuse:
		return &ArgumentError{What: "limit policy", Value: o.OnConflict, Want: "Adopt with Adapt: the limit changes"}
	case o.OnConflict > Refuse:
		return &ArgumentError{What: "limit policy", Value: o.OnConflict, Want: "Newest, Adopt or Refuse"}
	}
	return cmp.Or(
		engine.ValidateRange("", "passes", o.Passes, 0, MaxPasses), engine.ValidateRange("", "limit per key", o.PerKey, 0, MaxLimit),
		engine.ValidateRange("", "number of waiting callers", o.MaxWaiting, 0, MaxLimit), engine.ValidateText("label", o.Label, MaxLabel))
}

// machine is what the client machine needs to know of the options.
func (o Options) machine(session engine.Session, limit int) client.Config {
	lasting, ok := session.(engine.Lasting)
	return client.Config{
		Terms:   client.Terms{Limit: limit, PerKey: o.PerKey, Lease: o.Lease, Renew: max(0, o.Renew), Margin: o.Margin},
		MaxHold: o.MaxHold,
		Slots:   o.Slots, Strict: o.OnConflict == Refuse, Newest: o.OnConflict == Newest, Unfair: o.Unfair, Detached: o.Detached, Patient: o.Patient,
		Lasting: ok && lasting.Lasting(), Keep: o.Keep, Passes: o.Passes, MaxWaiting: o.MaxWaiting,
	}
}
