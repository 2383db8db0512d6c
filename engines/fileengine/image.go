package fileengine

import (
	"fmt"
	"slices"
	"strings"

	"sema/engine"
	"sema/internal/ledger"
	"sema/internal/pack"
	"sema/internal/protocol"
)

// image is the state of a log after the records that this process has read.
type image struct {
	header
	ledger    *ledger.Ledger
	slack     int64  // how much later than Last.At it may be
	headerEnd int64  // bytes of the line and the header
	end       int64  // bytes read
	sum       uint32 // checksum at end

	reaped []string // processes that other steps found dead since this process's last step
}

// newImage makes the image of a log that has only a header.
func newImage(h header) image {
	m := image{header: h, ledger: ledger.Load(h.State)}
	m.ledger.Watched = true
	return m
}

// encodeLog encodes a new log. Its header has the whole state.
func (m *image) encodeLog() []byte {
	m.State = m.ledger.Save()
	b, sum := frame(fmt.Appendf(nil, "%s%d %s\n", formWords, form, engine.Version), 0, pack.Append(nil, m.header.code))
	m.headerEnd, m.end, m.sum = int64(len(b)), int64(len(b)), sum
	return b
}

// readImage reads a log from its beginning to its last valid record.
func readImage(b []byte) (m image, err error) {
	rest, err := readLine(b)
	if err != nil {
		return image{}, err
	}
	payload, rest, sum, ok := unframe(rest, 0)
	if !ok {
		return image{}, errDamaged
	}
	h := header{}
	if pack.Read(payload, h.code) != nil {
		return image{}, errDamaged
	}
	m = newImage(h)
	m.sum = sum
	m.headerEnd = int64(len(b) - len(rest))
	m.end = m.headerEnd
	m.replay(rest)
	m.ledger.Notifications() // drop those of old records, and the list of dead processes
	m.reaped = nil
	return m, nil
}

// replay applies the records in b, and returns the bytes from the first invalid one on.
func (m *image) replay(b []byte) (rest []byte) {
	for len(b) > 0 {
		payload, rest, sum, ok := unframe(b, m.sum)
		if !ok {
			return b
		}
		rec := record{}
		if pack.Read(payload, rec.code) != nil {
			return b
		}
		m.apply(&rec, func(client string) bool { return !slices.Contains(rec.Lost, client) })
		m.end, m.sum = m.end+int64(len(b)-len(rest)), sum
		b = rest
	}
	return nil
}

// apply executes a record. reach reports whether a client can be notified.
func (m *image) apply(rec *record, reach func(client string) bool) (reply protocol.Reply) {
	m.Last, m.slack = rec.moment, 0
	m.ledger.Reach = reach
	if len(rec.Reap) > 0 || rec.Client == "" {
		m.reaped = append(m.reaped, rec.Reap...)
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
