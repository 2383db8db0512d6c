package sema

import (
	"fmt"
	"math"
	"os"
	"strings"
	"time"
	"unicode/utf8"
)

// The ranges of what callers may choose.
const (
	MaxLimit   = math.MaxInt32 // of a limit, and so of a weight
	MaxName    = 255           // bytes in a name
	MaxLabel   = 255           // bytes in a label
	MinLease   = 100 * time.Millisecond
	MaxLease   = 366 * 24 * time.Hour
	NoRenewal  = time.Duration(-1) // for Options.Renew
	leaseParts = 6                 // a waiter asks again this often in a lease; see ticketLife
)

// Policy says what happens when the stored limit is not the one given to New.
type Policy int

const (
	// Adopt goes by the stored limit and reports the difference to
	// Observer.LimitDiffers.
	Adopt Policy = iota
	// Refuse fails Acquire with a *LimitError.
	Refuse
	// Declare stores the given limit once, before this Semaphore's first
	// acquisition: the latest deployment wins.
	Declare
)

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
	// Default Adopt.
	OnConflict Policy

	// Unfair lets an acquisition take free weight although others wait, as
	// java.util.concurrent.Semaphore does by default. One that has to wait
	// is queued like all others.
	Unfair bool

	// Slots gives every permit a slot: an index 0 … limit-1 that no other
	// live permit with a slot has; for "which API key, which GPU, which port".
	Slots bool

	// Detached permits outlive the process and Close; Resume takes them up
	// again. Without it an engine may take a permit back as soon as it sees
	// that the process died.
	Detached bool

	// Label is shown to operators beside host and process id, at most
	// MaxLabel bytes. A permit with a label, or a detached one, has its age
	// and token recorded.
	// Default: none.
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
	return o
}

func (o Options) validate() error {
	switch {
	case o.Lease < MinLease || o.Lease > MaxLease:
		return &ArgumentError{"lease", o.Lease, fmt.Sprintf("%v … %v", MinLease, MaxLease)}
	case o.Margin < 0 || o.Margin > o.Lease/4:
		return &ArgumentError{"margin", o.Margin, fmt.Sprintf("0 … %v, a quarter of the lease", o.Lease/4)}
	case o.Renew != NoRenewal && (o.Renew <= 0 || o.Renew >= o.Lease-o.Margin):
		return &ArgumentError{"renewal interval", o.Renew, fmt.Sprintf("more than 0 and less than %v, the lease less the margin", o.Lease-o.Margin)}
	case o.OnConflict < Adopt || o.OnConflict > Declare:
		return &ArgumentError{"limit policy", int(o.OnConflict), "Adopt, Refuse or Declare"}
	}
	return checkText("label", o.Label, MaxLabel)
}

// ticketLife is how long a waiter that fell silent keeps its place, and the
// first lease of a permit that is handed over. Half a lease: a grant that
// nobody received does not lie for a whole one.
func (o Options) ticketLife() time.Duration { return o.Lease / 2 }

// askEvery is how often a waiter asks again. Together with the ticket's life
// it leaves room for two lost attempts, and for the margin.
func (o Options) askEvery() time.Duration { return o.Lease / leaseParts }

// ValidateName says whether a semaphore can have this name: 1 … MaxName bytes
// of UTF-8 without control characters. The error is an *ArgumentError.
func ValidateName(name string) error {
	if name == "" {
		return &ArgumentError{"name", `""`, "a name that is not empty"}
	}
	return checkText("name", name, MaxName)
}

// ValidateLimit says whether a semaphore can have this limit: 1 … MaxLimit.
// The error is an *ArgumentError.
func ValidateLimit(limit int) error {
	if limit < 1 || limit > MaxLimit {
		return &ArgumentError{"limit", limit, fmt.Sprintf("1 … %d", MaxLimit)}
	}
	return nil
}

func checkText(what, s string, most int) error {
	switch {
	case len(s) > most:
		return &ArgumentError{what, abbreviate(s), fmt.Sprintf("at most %d bytes", most)}
	case !utf8.ValidString(s):
		return &ArgumentError{what, abbreviate(s), "valid UTF-8"}
	case strings.ContainsFunc(s, isControl):
		return &ArgumentError{what, abbreviate(s), "no control characters"}
	}
	return nil
}

// isControl covers C0, DEL, C1 and the line separators, which would break
// listings and logs.
func isControl(r rune) bool {
	return r < 0x20 || r >= 0x7f && r < 0xa0 || r == '\u2028' || r == '\u2029'
}

// self describes this process to operators.
func self(label string) Client {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	return Client{Host: host, PID: os.Getpid(), Label: label}
}
