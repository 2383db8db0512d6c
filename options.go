package sema

import (
	"cmp"
	"fmt"
	"time"

	"sema/engine"
	"sema/internal/client"
	"sema/internal/protocol"
)

// NoRenewal is a value of Options.Renew. The ranges of limits, names, keys, labels and leases are in package engine.
const NoRenewal = time.Duration(-1)

// LimitPolicy says what happens when the stored limit is not the one given to New. A limit
// that an operator set, with Operator.Set or at a terminal, holds in any case.
type LimitPolicy uint8

// The policies.
const (
	// LimitNewest stores the given limit with this Semaphore's first acquisition, once. So
	// the limit of the process that was started last holds, and in the end the newest
	// deployment's. Processes with another limit go by the stored one, and report the
	// difference to Observer.LimitDiffers.
	LimitNewest LimitPolicy = iota
	// LimitStored goes by the stored limit and reports the difference to
	// Observer.LimitDiffers. The given one counts if none is stored.
	LimitStored
	// LimitStrict fails Acquire with a *LimitError.
	LimitStrict
)

// Options of a Semaphore. The zero value of each field is its default.
type Options struct {
	// Lease is how long a permit lives unless renewed, 100 ms … 366 days. Default 30 s. On
	// Redis, and behind a server, a dead holder's permit comes back after this time, and
	// holders lose their permits when the engine is away for as long. A shorter lease brings both
	// sooner. Cost: three calls in a lease for a holder, and six for a client that waits. Work
	// may take longer than the lease, which is renewed. Choose at least four times what the
	// work needs to stop.
	Lease time.Duration

	// Renew is how often a held permit is renewed. Default: a third of the
	// lease less the margin, so that two renewals may fail. It must be less
	// than Lease less Margin. NoRenewal: the permit ends with its lease,
	// unless Permit.Renew is called. Cost: a call each time, for all permits that are
	// due together.
	Renew time.Duration

	// Margin is how long before the lease can have ended the permit's context
	// ends: the time the holder has to stop. At most a quarter of the lease.
	// Default: a tenth of the lease, at most one second. Cost: while the engine is away
	// a permit is lost that much earlier.
	Margin time.Duration

	// OnConflict says what to do about a stored limit that differs.
	// Default LimitNewest. Cost: none.
	OnConflict LimitPolicy

	// Caps are the most weight that each key without a cap of its own may hold, see For: {20, 4} is 20 per
	// organisation and 4 per user of one. Each 0 … engine.MaxLimit, and 0 is no cap. They are stored with the
	// limit, and OnConflict goes for all. Acquisitions without a key have no such cap.
	// Default: none, the limit alone. Cost: as of For.
	Caps engine.Caps

	// Pools are further limits: "gpu=8,licence=4". Acquisitions take some of them with Take. At most 16, each with a name
	// of 1 … 32 letters, digits, dots, hyphens and underscores and an amount of 1 … engine.MaxLimit. engine.NewPools makes
	// the text of a map. They are stored with the limit, and OnConflict goes for all.
	//
	// A pool may be a rate, which comes back with time and not with the permits. Of "rpm=500/1m" there are 500 at once, and 500 come
	// back in each minute. Of "tpm=20000+200000/1m" there are 20,000 at once, and 200,000 come back in each minute. In any time
	// no more begins than there is at once and comes back meanwhile: so give a vendor that counts by the minute
	// a rate whose two numbers are its quota together. A minute may be anything from 1ms to 24h, in ms, s, m or h.
	// See Permit.Used. A caller that lacks rates alone keeps only rates from others. Permits with a rate do not pass within a process.
	// Default: none. Cost: as of Take.
	Pools engine.Pools

	// Unfair lets an acquisition take free weight although others wait, as
	// java.util.concurrent.Semaphore does by default. One that has to wait
	// is queued like all others. Default: false. Cost: callers that wait may starve.
	Unfair bool

	// MaxWaiting is how many callers of a key may wait for the same pools: another one fails at
	// once, with a *BusyError. Default: 0, as many as come. At most engine.MaxLimit. It bounds the wait of those
	// that are served: choose the limit × the longest wait ÷ the time of the work, and at least the
	// limit, so that no permit lies idle. A process counts its own callers, and the tickets of
	// other processes as the engine last reported them; so several processes together may
	// have more that wait, by at most MaxWaiting each. Cost: none.
	MaxWaiting int

	// Observe only watches the limit, and Caps and Pools with it: nobody waits and nobody is refused, and it is counted who would
	// have waited. So the numbers of a new semaphore are tried before they count. See Permit.WouldWait, Event.WouldWait and
	// State.Observed, which also tells the limit that would have been enough. A pause and a cooldown hold all the same. It is stored
	// with the limit, as OnConflict says, until a newer process or Operator.Set says otherwise. Meanwhile more than the limit is held, and permits
	// beyond it have no slot. Default: false. Cost: an acquisition takes longer on the engine, and nothing is passed on or kept.
	Observe bool

	// Slots gives every permit a slot: an index 0 … limit-1 that no other
	// live permit with a slot has; for "which API key, which GPU, which port". Default:
	// false. Cost: a grant looks through the slots in use for a free one.
	Slots bool

	// Detached permits outlive the process and Close; Resume takes them up
	// again. Without it an engine may take a permit back as soon as it sees
	// that the process died. Default: false. Cost: the permits of a process that died
	// come back with their leases, and no permit passes from caller to caller.
	Detached bool

	// Patient lets a wait last through an engine that is away, for as long as the
	// wait's context lasts. That is so with a place in the queue, and before the
	// engine's first answer. Observer.RenewFailed tells of each attempt. A place
	// goes by how long its caller has waited, so an engine that comes back knows it again.
	// Default: a wait fails once the engine has been away for a lease, and for three
	// seconds if it has no place yet. TryAcquire and what the engine refuses for good
	// fail as without Patient. Cost: in an outage callers wait in place of failing.
	Patient bool

	// MaxHold is how long a permit may be held: then its contexts end, with
	// cause ErrHeldTooLong, and one margin later it comes back, released or not.
	// At least 100 ms. Default: as long as its holder likes. Cost: no permit passes from
	// caller to caller.
	MaxHold time.Duration

	// Keep is how long a released permit stays in this process for its next
	// caller, if nobody here waits for it and no other client does. Its own caller has
	// to have come within Keep of another's release. An Acquire
	// within that time takes it without asking the engine, which makes it some
	// hundred times as fast. Cost: Release returns before the engine knows;
	// other clients see the weight as held for that time, or until they ask for it; and a
	// process that ends without Close leaves the permit to its lease. So: for
	// long-lived processes, and a few milliseconds are enough. 0 … a sixth of the lease. Default: 0, Release gives back at once.
	// With NoRenewal, MaxHold or Detached it has to be 0.
	Keep time.Duration

	// Adapt, if not nil, makes the semaphore find its limit between two bounds. It
	// starts at the limit given to New; OnConflict must be LimitStored. Close ends its
	// work in the background. Default: nil, the limit stays as set. Cost: each process
	// in use reports to the engine every two seconds.
	Adapt *Adapt

	// Label is shown to operators beside host and process id, at most
	// 255 bytes. The option Label is for a single acquisition. Default: the program's name. Cost: none.
	Label string

	// Observer is told what happens. Default: nobody. Cost: callers wait for its functions.
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
	if o.Adapt != nil && o.OnConflict == LimitNewest {
		o.OnConflict = LimitStored
	}
	if pools, err := engine.ParsePools(string(o.Pools), 1); err == nil {
		o.Pools = pools // in their order
	}
	return o
}

func (o Options) validate() error {
	if err := engine.ValidateRange("", "lease", o.Lease, engine.MinLease, engine.MaxLease); err != nil {
		return err
	}
	switch {
	case o.Margin < 0 || o.Margin > o.Lease/4:
		return &ArgumentError{What: "margin", Value: o.Margin, Want: fmt.Sprintf("0 … %v, a quarter of the lease", o.Lease/4)}
	case o.Renew != NoRenewal && (o.Renew <= 0 || o.Renew >= o.Lease-o.Margin):
		return &ArgumentError{What: "renewal interval", Value: o.Renew, Want: fmt.Sprintf("more than 0 and less than %v, the lease less the margin", o.Lease-o.Margin)}
	case o.MaxHold != 0 && o.MaxHold < engine.MinLease:
		return &ArgumentError{What: "longest hold", Value: o.MaxHold, Want: fmt.Sprintf("0, or at least %v", engine.MinLease)}
	case o.Keep < 0 || o.Keep > o.Lease/6:
		return &ArgumentError{What: "time to keep", Value: o.Keep, Want: fmt.Sprintf("0 … %v, a sixth of the lease", o.Lease/6)}
	case o.Keep > 0 && (o.Renew == NoRenewal || o.MaxHold > 0 || o.Detached):
		return &ArgumentError{What: "time to keep", Value: o.Keep, Want: "0 with NoRenewal, MaxHold or Detached: such permits are each caller's own"}
	case o.Adapt != nil && o.OnConflict == LimitStrict:
		return &ArgumentError{What: "limit policy", Value: o.OnConflict, Want: "LimitStored with Adapt: the limit changes"}
	case o.OnConflict > LimitStrict:
		return &ArgumentError{What: "limit policy", Value: o.OnConflict, Want: "LimitNewest, LimitStored or LimitStrict"}
	}
	return cmp.Or(
		o.Caps.Validate(), o.Pools.Validate(1),
		engine.ValidateRange("", "number of waiting callers", o.MaxWaiting, 0, engine.MaxLimit), engine.ValidateText("label", o.Label, engine.MaxLabel))
}

// machine is what the client machine needs to know of the options.
func (o Options) machine(session protocol.Session, limit int) client.Config {
	lasting, ok := session.(protocol.Lasting)
	return client.Config{
		Terms:   client.Terms{Observe: o.Observe, Limit: limit, Caps: o.Caps, Pools: o.Pools, Lease: o.Lease, Renew: max(0, o.Renew), Margin: o.Margin},
		MaxHold: o.MaxHold,
		Slots:   o.Slots, Strict: o.OnConflict == LimitStrict, Newest: o.OnConflict == LimitNewest, Unfair: o.Unfair, Detached: o.Detached, Patient: o.Patient,
		Lasting: ok && lasting.Lasting(), Keep: o.Keep, MaxWaiting: o.MaxWaiting,
	}
}
