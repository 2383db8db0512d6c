package gate

import (
	"fmt"
	"time"

	"sema"
)

// Policy is outage.Policy.
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

// maxPlaces bounds the places of Local.
const maxPlaces = 1_000_000

// quickAnswer is the default of After, unless requests fail closed.
const quickAnswer = 100 * time.Millisecond

// Open is outage.Open.
var Open = Policy{kind: open}

// Local is outage.Local.
func Local(places, perKey int) Policy { return Policy{kind: local, places: places, perKey: perKey} }

// After is that of outage.Policy.
func (p Policy) After(d time.Duration) Policy {
	p.after = d
	return p
}

// String is how a program writes the policy.
func (p Policy) String() string {
	s := [...]string{"outage.Closed", "outage.Open", fmt.Sprintf("outage.Local(%d, %d)", p.places, p.perKey)}[p.kind]
	if p.after != 0 {
		s += fmt.Sprintf(".After(%v)", p.after)
	}
	return s
}

func (p Policy) check() error {
	invalid := func(what string, value any, want string) error {
		return &sema.ArgumentError{Package: "outage", What: what, Value: value, Want: want}
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
