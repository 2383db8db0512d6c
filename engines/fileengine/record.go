package fileengine

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"strconv"
	"strings"

	"sema/engine"
	"sema/internal/ledger"
	"sema/internal/pack"
	"sema/internal/protocol"
)

// A log has a line, a frame with the header, and a frame for each record. The line has the
// log's form, and the release that wrote the log. A frame is the payload's length and
// checksum, 4 bytes each, and the payload. Each checksum includes the one before, so a
// record is valid only after the records that it was written after.
//
// Package pack encodes the payloads.
const (
	form       = 1 // the number of the log's layout and of the meaning of its records
	formWords  = "sema log "
	maxLine    = 64 // bytes
	frameHead  = 8
	maxPayload = 64 << 20
)

// castagnoli makes the table at the first call, so programs with another engine do not pay
// for it.
func castagnoli() *crc32.Table { return crc32.MakeTable(crc32.Castagnoli) }

var errDamaged = pack.ErrDamaged

// header is the first frame of a log.
type header struct {
	identity
	Last  moment // the last record's before it
	State ledger.Snapshot
}

// identity identifies a log. Rewriting does not change it.
type identity struct {
	Name string
	ID   uint64 // of the log; random
}

// record is one step. Processes that apply the same records to the same ledger get the
// same result.
type record struct {
	moment
	Reap   []string      // processes found dead before the step
	Lost   []string      // clients that could not be reached during the step
	Client string        // "": there is no call; only the time advances
	Who    engine.Client // kept for an Ask only
	Call   protocol.Call
}

// readLine reads the first line of a log. The error is errDamaged or a ledger.ErrForm.
func readLine(b []byte) (rest []byte, err error) {
	line, _, ok := bytes.Cut(b[:min(len(b), maxLine)], []byte("\n"))
	words, known := strings.CutPrefix(string(line), formWords)
	number, release, _ := strings.Cut(words, " ")
	n, err := strconv.Atoi(number)
	switch {
	case !ok || !known || err != nil || n <= 0 || engine.ValidateText("release", release, maxLine) != nil:
		return nil, errDamaged
	case n != form:
		if release != "" {
			release = ", by sema " + release
		}
		return nil, fmt.Errorf("the log was %w: form %d%s; this is sema %s, which knows form %d", ledger.ErrForm, n, release, engine.Version, form)
	}
	return b[len(line)+1:], nil
}

// frame appends a frame to b. It returns b and the checksum for the next frame.
func frame(b []byte, sum uint32, payload []byte) ([]byte, uint32) {
	sum = crc32.Update(sum, castagnoli(), payload)
	b = binary.LittleEndian.AppendUint32(b, uint32(len(payload)))
	b = binary.LittleEndian.AppendUint32(b, sum)
	return append(b, payload...), sum
}

// unframe reads the frame at the beginning of b. ok is false if it is not valid.
func unframe(b []byte, sum uint32) (payload, rest []byte, next uint32, ok bool) {
	if len(b) < frameHead {
		return nil, b, sum, false
	}
	n := int64(binary.LittleEndian.Uint32(b))
	if n > maxPayload || n > int64(len(b)-frameHead) {
		return nil, b, sum, false
	}
	payload = b[frameHead : frameHead+n]
	next = crc32.Update(sum, castagnoli(), payload)
	if next != binary.LittleEndian.Uint32(b[4:]) {
		return nil, b, sum, false
	}
	return payload, b[frameHead+n:], next, true
}

// code appends the record, or reads it. All processes read it, and a log is rewritten after some
// number of bytes, so what most records lack takes a bit: other clients than the caller, its
// description without an Ask, keys, and what processes leave behind.
func (rec *record) code(c *pack.Coder) {
	rec.moment.code(c)
	pack.Text(c, &rec.Client)
	calls, left := rec.Client != "", len(rec.Reap)+len(rec.Lost) > 0
	if c.Bits(&left, &rec.Call.Fence); left {
		c.Texts(&rec.Reap)
		c.Texts(&rec.Lost)
	}
	if !calls {
		return
	}
	c.Uint(&rec.Call.Number)
	asks := false
	pack.List(c, &rec.Call.Requests, func(q *protocol.Request) {
		own := q.ID.Client == rec.Client
		keyed := q.Target != protocol.Target{} || q.Caps != engine.Caps{} || q.Cap != 0 || q.Share != 0 || q.Pools != ""
		pack.Int(c, &q.Kind)
		c.Bits(&own, &keyed, &q.Wait, &q.Unfair, &q.Strict, &q.Detached, &q.Pin, &q.Anew, &q.Again, &q.Mine, &q.Newest, &q.Observe)
		id := q.ID
		if own {
			id.Client = ""
		}
		if c.ID(&id); c.Reading {
			q.ID = id
			if own {
				q.ID.Client = rec.Client
			}
		}
		pack.Int(c, &q.Limit)
		c.Duration(&q.Lease)
		c.Duration(&q.Ticket)
		c.Duration(&q.Waited)
		pack.Int(c, &q.Behind)
		pack.Int(c, &q.Token)
		if keyed {
			c.Name((*string)(&q.Key))
			c.Name((*string)(&q.Takes))
			for i := range q.Caps {
				pack.Int(c, &q.Caps[i])
			}
			pack.Int(c, &q.Cap)
			pack.Int(c, &q.Share)
			pack.Text(c, &q.Pools)
		}
		pack.Optional(c, &q.Who, c.Who)
		pack.Optional(c, &q.Totals, func(t *protocol.Totals) {
			pack.Int(c, &t.Good)
			pack.Int(c, &t.Bad)
			pack.Int(c, &t.Waited)
		})
		pack.Optional(c, &q.Auto, func(a *engine.Auto) {
			pack.Int(c, &a.Min)
			pack.Int(c, &a.Max)
			pack.Int(c, &a.Bad)
		})
		asks = asks || q.Kind == protocol.Ask || q.Kind == protocol.Cooldown
	})
	if asks {
		c.Who(&rec.Who)
	}
}

// code appends the moment, or reads it.
func (m *moment) code(c *pack.Coder) {
	pack.Int(c, &m.At)
	pack.From(c, &m.Wall, m.At)
	pack.Int(c, &m.Up)
}

// code appends the header, or reads it.
func (h *header) code(c *pack.Coder) {
	h.identity.code(c)
	h.Last.code(c)
	h.State.Code(c)
}

func (id *identity) code(c *pack.Coder) {
	pack.Text(c, &id.Name)
	c.Uint(&id.ID)
}

// peek reads the identity from the beginning of a log.
func peek(b []byte) (id identity, ok bool) {
	rest, err := readLine(b)
	if err != nil || len(rest) < frameHead {
		return id, false
	}
	c := pack.Reader(rest[frameHead:])
	id.code(c)
	return id, c.Err == nil
}
