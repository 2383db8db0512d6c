package fileengine

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"errors"
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
// log's form, and the release that wrote the log. A
// frame is the payload's length and checksum, 4 bytes each, and the payload. Each checksum
// includes the one before, so a record is valid only after the records that it was
// written after.
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

var errDamaged = errors.New("damaged")

// header is the first frame of a log.
type header struct {
	identity
	Base  int64 // the log's time minus the host's clock, in microseconds
	State ledger.Snapshot
}

// identity identifies a log. Rewriting does not change it.
type identity struct {
	Name string
	Boot string // of the host; its clock starts again with each boot
	ID   uint64 // of the log; random
}

// record is one step. Processes that apply the same records to the same ledger get the
// same result.
type record struct {
	At     int64
	Reap   []string // processes found dead before the step
	Lost   []string // clients that could not be reached during the step
	Client string   // "": there is no call; only the time advances
	Who    engine.Client
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
		return nil, fmt.Errorf("the log was %w: form %d, by sema %s; this is sema %s, which knows form %d", ledger.ErrForm, n, cmp.Or(release, "?"), engine.Version, form)
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

func (rec *record) encode() []byte {
	w := &pack.Writer{B: make([]byte, 0, 256)}
	w.Int(rec.At)
	w.Texts(rec.Reap)
	w.Texts(rec.Lost)
	w.Text(rec.Client)
	if rec.Client == "" {
		return w.B
	}
	w.Who(rec.Who)
	w.Uint(rec.Call.Number)
	w.Bits(rec.Call.Fence)
	w.Uint(uint64(len(rec.Call.Requests)))
	for _, q := range rec.Call.Requests {
		w.Uint(uint64(q.Kind))
		w.ID(q.ID, rec.Client)
		w.Int(int64(q.Limit))
		w.Duration(q.Lease)
		w.Duration(q.Ticket)
		w.Duration(q.Waited)
		w.Bits(q.Wait, q.Unfair, q.Strict, q.Detached, q.Pin, q.Anew, q.Again, q.Mine, q.Newest, q.Who != nil, q.Totals != nil, q.Auto != nil)
		w.Int(int64(q.Behind))
		w.Int(q.Token)
		w.Text(q.Key)
		for _, c := range q.Caps {
			w.Int(int64(c))
		}
		w.Int(int64(q.Cap))
		w.Int(int64(q.Share))
		w.Text(string(q.Pools))
		if q.Who != nil {
			w.Who(*q.Who)
		}
		if t := q.Totals; t != nil {
			w.Int(t.Good)
			w.Int(t.Bad)
			w.Int(t.Waited)
		}
		if a := q.Auto; a != nil {
			w.Int(int64(a.Min))
			w.Int(int64(a.Max))
			w.Int(int64(a.Bad))
		}
	}
	return w.B
}

func decodeRecord(payload []byte) (rec record, ok bool) {
	r := &pack.Reader{B: string(payload)}
	rec.At, rec.Reap, rec.Lost, rec.Client = r.Int(), r.Texts(), r.Texts(), r.Text()
	if rec.Client != "" {
		rec.Who = r.Who()
		rec.Call.Number = r.Uint()
		r.Bits(&rec.Call.Fence)
		for range r.Count() {
			q := protocol.Request{Kind: protocol.Kind(r.Uint()), ID: r.ID(rec.Client), Limit: int(r.Int())}
			q.Lease, q.Ticket, q.Waited = r.Duration(), r.Duration(), r.Duration()
			named, reports, auto := false, false, false
			r.Bits(&q.Wait, &q.Unfair, &q.Strict, &q.Detached, &q.Pin, &q.Anew, &q.Again, &q.Mine, &q.Newest, &named, &reports, &auto)
			q.Behind, q.Token, q.Key = int(r.Int()), r.Int(), r.Text()
			for i := range q.Caps {
				q.Caps[i] = int(r.Int())
			}
			q.Cap, q.Share, q.Pools = int(r.Int()), int(r.Int()), engine.Pools(r.Text())
			if named {
				who := r.Who()
				q.Who = &who
			}
			if reports {
				q.Totals = &protocol.Totals{Good: r.Int(), Bad: r.Int(), Waited: r.Int()}
			}
			if auto {
				q.Auto = &engine.Auto{Min: int(r.Int()), Max: int(r.Int()), Bad: int(r.Int())}
			}
			rec.Call.Requests = append(rec.Call.Requests, q)
		}
	}
	return rec, r.Whole()
}

func (h *header) encode() []byte {
	w := &pack.Writer{}
	w.Text(h.Name)
	w.Text(h.Boot)
	w.Uint(h.ID)
	w.Int(h.Base)
	h.State.Append(w)
	return w.B
}

func decodeHeader(payload []byte) (h header, ok bool) {
	r := &pack.Reader{B: string(payload)}
	h.identity = identity{r.Text(), r.Text(), r.Uint()}
	h.Base = r.Int()
	state, err := ledger.ReadSnapshot(r)
	h.State = state
	return h, err == nil && r.Whole()
}

// peek reads the identity from the beginning of a log.
func peek(b []byte) (id identity, ok bool) {
	rest, err := readLine(b)
	if err != nil || len(rest) < frameHead {
		return id, false
	}
	r := &pack.Reader{B: string(rest[frameHead:])}
	id = identity{r.Text(), r.Text(), r.Uint()}
	return id, !r.Bad
}
