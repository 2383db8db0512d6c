// Package history is what those who used semaphores wrote down, be it in one
// process or in several, and the judge that reads it.
//
// All times are nanoseconds on one clock, such as the host's monotonic one, which
// its processes share. A judge claims a breach only if no reading of the record keeps the
// promise.
package history

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"time"
)

// Kind says what an event is about.
type Kind string

// The kinds of events.
const (
	Call     Kind = "call"     // an acquisition is about to be asked for
	Queued   Kind = "queued"   // it is known to wait
	Got      Kind = "got"      // it has returned a permit
	Held     Kind = "held"     // the permit was found to be held
	Failed   Kind = "failed"   // it has returned without a permit
	Release  Kind = "release"  // the permit is about to be released
	Released Kind = "released" // Release has returned
	Lost     Kind = "lost"     // the holder was told that it has lost the permit
	Limit    Kind = "limit"    // SetLimit is about to be called
	Limited  Kind = "limited"  // SetLimit has returned
	Closing  Kind = "closing"  // Close of a semaphore is about to be called
	Closed   Kind = "closed"   // it has returned
	Stall    Kind = "stall"    // the process stood still; At is when it went on
	Began    Kind = "began"    // the process has begun; Count goroutines run
	Ended    Kind = "ended"    // all is closed; Count goroutines run
)

// Event is one thing that a process saw. Op numbers the acquisitions of a
// worker.
type Event struct {
	At     int64  `json:"t"`
	Kind   Kind   `json:"k"`
	Worker int    `json:"w"`
	Sem    int    `json:"s"`
	Op     int64  `json:"n,omitempty"`
	Weight int    `json:"weight,omitempty"` // Call
	Key    string `json:"key,omitempty"`    // Call: whose it is to be
	Try    bool   `json:"try,omitempty"`    // Call: does not wait
	Until  int64  `json:"until,omitempty"`  // Call: when the context ends; 0: never
	Permit string `json:"id,omitempty"`     // Got
	Token  int64  `json:"token,omitempty"`  // Got
	Slot   int    `json:"slot,omitempty"`   // Got: the slot and 1; 0: none
	Held   int64  `json:"held,omitempty"`   // Got, Held, Release: when it was last certain that the permit is held; 0: it was not
	Error  string `json:"err,omitempty"`    // Failed, Released, Lost, Limited: the class of the error
	Text   string `json:"text,omitempty"`   // the error
	Limit  int    `json:"limit,omitempty"`  // Limit, Limited
	Span   int64  `json:"span,omitempty"`   // Stall: how long
	Count  int    `json:"count,omitempty"`  // Began, Ended
}

// The classes of errors.
const (
	ErrContext   = "context"     // the context ended
	ErrRefused   = "unavailable" // nothing was free
	ErrLost      = "lost"
	ErrReleased  = "released"
	ErrClosed    = "closed"
	ErrWeight    = "weight" // above the limit
	ErrTemporary = "engine" // the engine could not be reached
	ErrEngine    = "refused by the engine"
	ErrOther     = "other"
)

// Semaphore describes one semaphore of a round.
type Semaphore struct {
	Name    string        `json:"name"`
	Limit   int           `json:"limit"`
	Lease   time.Duration `json:"lease"`
	Keep    time.Duration `json:"keep,omitempty"`
	Passes  int           `json:"passes,omitempty"`
	Unfair  bool          `json:"unfair,omitempty"`
	Slots   bool          `json:"slots,omitempty"`
	Weights bool          `json:"weights,omitempty"` // of 1 … Limit
	Resized bool          `json:"resized,omitempty"` // SetLimit is part of the load

	Keys   int             `json:"keys,omitempty"`    // so many share it; 0: it has none
	PerKey int             `json:"per_key,omitempty"` // the most that each of them may hold; 0: as much as the limit
	Rules  map[string]Rule `json:"rules,omitempty"`   // of keys that may have other than that

	// Ordered has the order judged to the instant, by tokens: a caller that waits or
	// was served before another one asks has the smaller token, or one that is
	// greater by less than Late. A token is the time in microseconds, or greater.
	// Without Ordered, order and wake-ups are judged by how long they took.
	Ordered bool          `json:"ordered,omitempty"`
	Late    time.Duration `json:"late,omitempty"` // by so much permits pass on within a process after another asked
}

// Rule is what one key may have, all the time; 0 is what the others have.
type Rule struct {
	Cap   int `json:"cap,omitempty"`
	Share int `json:"share,omitempty"`
}

// Worker is a process of a round.
type Worker struct {
	ID   int   `json:"id"`
	Site int   `json:"site"`
	Gone int64 `json:"gone,omitempty"` // when it was killed; 0: it ended by itself
}

// Window is one occurrence of a fault.
type Window struct {
	Fault   string        `json:"fault"`
	Begin   int64         `json:"begin"`
	End     int64         `json:"end"`
	Sites   []int         `json:"sites,omitempty"`   // it hits; with Workers empty as well: all
	Workers []int         `json:"workers,omitempty"` // it hits
	Limit   bool          `json:"excuses_limit,omitempty"`
	Tokens  bool          `json:"excuses_tokens,omitempty"`
	Order   bool          `json:"excuses_order,omitempty"`
	Sleep   bool          `json:"excuses_sleep,omitempty"` // until the end of the round
	Leases  time.Duration `json:"leases_end_earlier,omitempty"`
}

// Round is the whole record of one round.
type Round struct {
	Semaphores []Semaphore
	Workers    []Worker
	Windows    []Window
	Events     []Event

	// Found is how long after a fault it may take to find the master again, where
	// others have to be asked for it.
	Found time.Duration

	// Clock is what has to be added to a time here for that of a token, in nanoseconds. Only
	// a server on this host has one that can be told. With it the turn of keys is judged.
	Clock int64
}

// Line is an event as one line, short enough that a pipe takes it whole.
func (e Event) Line() []byte {
	if len(e.Text) > 300 {
		e.Text = e.Text[:300]
	}
	line, err := json.Marshal(e)
	if err != nil { // no field can fail
		panic(err)
	}
	return append(line, '\n')
}

// Stalled is that a process stood still for so long until a moment.
func Stalled(worker int, end time.Time, span time.Duration) Event {
	return Event{At: Now() - int64(time.Since(end)), Kind: Stall, Worker: worker, Span: int64(span)}
}

// Read reads lines of events. What a process had begun to write when it was
// killed is no line, and is left out.
func Read(b []byte) ([]Event, error) {
	var events []Event
	for len(b) > 0 {
		line, rest, whole := bytes.Cut(b, []byte("\n"))
		if !whole {
			break
		}
		b = rest
		var e Event
		if err := json.Unmarshal(line, &e); err != nil {
			return events, fmt.Errorf("history: %w in %.200q", err, line)
		}
		events = append(events, e)
	}
	return events, nil
}

// Save writes the round so that Load reads it: a line with what is known of it,
// then a line for each event.
func (r *Round) Save(w io.Writer) error {
	head := *r
	head.Events = nil
	line, err := json.Marshal(head)
	if err == nil {
		_, err = w.Write(append(line, '\n'))
	}
	for _, e := range r.Events {
		if err == nil {
			_, err = w.Write(e.Line())
		}
	}
	if err != nil {
		return fmt.Errorf("history: %w", err)
	}
	return nil
}

// Load reads what Save wrote.
func Load(b []byte) (*Round, error) {
	line, rest, _ := bytes.Cut(b, []byte("\n"))
	r := &Round{}
	if err := json.Unmarshal(line, r); err != nil {
		return nil, fmt.Errorf("history: %w", err)
	}
	var err error
	r.Events, err = Read(rest)
	return r, err
}
