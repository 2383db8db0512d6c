package engine

import (
	"strconv"
	"strings"
)

// ID names a permit. The client makes it before it asks, so a repeated ask cannot take
// a second permit. It holds all that an engine needs to remove the permit. Its text is
// client-number-weight, or client-numbers-weight for a permit with a slot.
type ID struct {
	Client string // the session's Client
	Number uint64 // unique within the client
	Weight int    // 1 … MaxLimit
	Slot   bool   // the permit carries a slot
}

// String is the text of the ID.
func (id ID) String() string { return string(id.Append(make([]byte, 0, len(id.Client)+33))) }

// Append appends the text of the ID to b.
func (id ID) Append(b []byte) []byte {
	b = append(b, id.Client...)
	b = append(b, '-')
	b = strconv.AppendUint(b, id.Number, 10)
	if id.Slot {
		b = append(b, 's')
	}
	b = append(b, '-')
	return strconv.AppendInt(b, int64(id.Weight), 10)
}

// maxClient is the longest client in an ID, in bytes.
const maxClient = 64

// ParseID reads the text of an ID. It fails with an *ArgumentError on any text that
// ID.String cannot produce.
func ParseID(s string) (ID, error) {
	client, rest, ok := strings.Cut(s, "-")
	middle, weight, ok2 := strings.Cut(rest, "-")
	middle, slot := strings.CutSuffix(middle, "s")
	id := ID{Client: client, Slot: slot}
	var err1, err2 error
	id.Number, err1 = strconv.ParseUint(middle, 10, 64)
	w, err2 := strconv.ParseInt(weight, 10, 32)
	id.Weight = int(w)
	// The last comparison refuses leading zeros and signs.
	if !ok || !ok2 || !validClient(client) || err1 != nil || err2 != nil || id.Weight < 1 || id.String() != s {
		return ID{}, &ArgumentError{What: "permit", Value: s, Want: "an id as acquire printed it (client-number-weight)"}
	}
	return id, nil
}

func validClient(s string) bool {
	return s != "" && len(s) <= maxClient && !strings.ContainsFunc(s, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < '0' || r > '9') && r != '.'
	})
}
