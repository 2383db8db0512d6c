package fileengine

import (
	"slices"
	"strings"

	"sema/engine"
	"sema/internal/ledger"
)

// image is a log as read up to some place: the ledger that its records make.
type image struct {
	header
	form   int // see newestForm; 0: it is not written yet
	ledger *ledger.Ledger
	last   int64  // time of the last record
	whole  int64  // bytes of the line and the header
	end    int64  // bytes read
	sum    uint32 // checksum at end

	buried []string // processes that were found dead since the last step here
}

// newImage begins a log with the given header.
func newImage(h header) image {
	m := image{header: h, ledger: ledger.Load(h.State)}
	m.ledger.Watched = true
	return m
}

// text is the whole log anew, in a form: all that happened until now goes into its
// header.
func (m *image) text(form int) []byte {
	m.State, m.form = m.ledger.Save(), form
	b, sum := frame([]byte(formLine(form)), 0, m.encode())
	m.whole, m.end, m.sum = int64(len(b)), int64(len(b)), sum
	return b
}

// readImage reads a log of a form up to newest from its beginning, as far as it is
// whole.
func readImage(b []byte, newest int) (m image, err error) {
	form, release, rest := readForm(b)
	switch {
	case form == 0:
		return image{}, errDamaged
	case form < oldestForm || form > newest:
		return image{}, &formError{form, release}
	}
	payload, rest, sum, ok := unframe(rest, 0)
	if !ok {
		return image{}, errDamaged
	}
	h, ok := decodeHeader(payload)
	if !ok {
		return image{}, errDamaged
	}
	m = newImage(h)
	m.form, m.sum = form, sum
	m.whole = int64(len(b) - len(rest))
	m.end = m.whole
	m.replay(rest)
	m.ledger.Notifications() // of times gone by, as is who was buried
	m.buried = nil
	return m, nil
}

// replay applies records, and returns what is not one.
func (m *image) replay(b []byte) (rest []byte) {
	for len(b) > 0 {
		payload, rest, sum, ok := unframe(b, m.sum)
		if !ok {
			return b
		}
		rec, ok := decodeRecord(payload)
		if !ok {
			return b
		}
		m.apply(&rec, func(client string) bool { return !slices.Contains(rec.Lost, client) })
		m.end, m.sum = m.end+int64(len(b)-len(rest)), sum
		b = rest
	}
	return nil
}

// apply carries out one step.
func (m *image) apply(rec *record, reach func(client string) bool) (reply engine.Reply) {
	m.last = max(m.last, rec.At)
	m.ledger.Reach = reach
	if len(rec.Reap) > 0 || rec.Client == "" {
		m.buried = append(m.buried, rec.Reap...)
		m.ledger.Reap(rec.At, func(client string) bool { return slices.Contains(rec.Reap, processOf(client)) })
	}
	if rec.Client != "" {
		reply = m.ledger.Step(rec.At, rec.Client, rec.Who, rec.Call)
	}
	return reply
}

// processOf is the first part of a client's name.
func processOf(client string) string {
	process, _, _ := strings.Cut(client, ".")
	return process
}
