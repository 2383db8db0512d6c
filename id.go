package sema

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// ID is what the name of a permit says of it: client-number[flags]-weight. The
// client names its permits itself, before it asks, so that asking again cannot
// take a second one; and the name carries what an engine must know to forget
// the permit, so that an engine needs no record beside it.
type ID struct {
	Client string // the session's Client
	Number uint64 // unique within the client
	Slot   bool   // flag s: the permit carries a slot
	Listed bool   // flag l: age and token are recorded for Holders
	Weight int
}

// String is the permit's name.
func (id ID) String() string {
	b := append(make([]byte, 0, 64+24), id.Client...) // for a client's name of any length
	b = append(b, '-')
	b = strconv.AppendUint(b, id.Number, 10)
	if id.Slot {
		b = append(b, 's')
	}
	if id.Listed {
		b = append(b, 'l')
	}
	b = append(b, '-')
	return string(strconv.AppendInt(b, int64(id.Weight), 10))
}

var idPattern = regexp.MustCompile(`^([a-z0-9.]{1,64})-([0-9]{1,19})(s?)(l?)-([0-9]{1,10})$`)

// ParseID reads a permit's name. It fails with an *ArgumentError on anything
// that ID.String cannot have made.
func ParseID(s string) (ID, error) {
	m := idPattern.FindStringSubmatch(s)
	if m == nil {
		return ID{}, &ArgumentError{What: "permit", Value: abbreviate(s), Want: "an id as acquire printed it (client-number-weight)"}
	}
	number, err1 := strconv.ParseUint(m[2], 10, 64)
	weight, err2 := strconv.Atoi(m[5])
	if err1 != nil || err2 != nil || weight < 1 || weight > MaxLimit {
		return ID{}, &ArgumentError{What: "permit", Value: abbreviate(s), Want: "an id as acquire printed it (client-number-weight)"}
	}
	return ID{Client: m[1], Number: number, Slot: m[3] != "", Listed: m[4] != "", Weight: weight}, nil
}

// ClientOf is the client part of a permit's name.
func ClientOf(id string) string {
	client, _, _ := strings.Cut(id, "-")
	return client
}

// abbreviate keeps a wrong value from flooding a terminal or a log.
func abbreviate(s string) string {
	const most = 60
	if len(s) > most {
		return fmt.Sprintf("%q… (%d bytes)", s[:most], len(s))
	}
	return strconv.Quote(s)
}
