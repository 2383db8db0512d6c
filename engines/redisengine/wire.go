package redisengine

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"sema/engine"
	"sema/internal/protocol"
)

// This file encodes calls, and decodes replies and notifications; lua/layout.lua
// describes the same formats for the scripts.

// Kinds and flags of a run of requests, and marks of a call.
const (
	askKeyed  = 100 // the kind of an Ask with a key, or with caps of keys
	askPooled = 101 // the kind of an Ask with pools
	setCaps   = 105 // the kind of a SetLimit with caps of keys
	setPools  = 106 // the kind of a SetLimit with pools

	tokenFlag = 16 // of Renew and Release: the tokens follow

	fenceMark = 1
	passMark  = 2
)

// words encodes the calls of a session. Each call reuses the memory of the call
// before.
type words struct {
	keys   keys
	client string
	who    string // the client's description in the states that others read, as JSON
	keyed  bool   // the semaphore has keys, or this client's requests name some
	args   []any
	texts  []string // args point to its elements: a string as an interface value would be allocated, a pointer is not
	buf    []byte
	ends   []int // of the texts in buf
}

// detach gives the memory of the last encode to its user, so that the next
// encode does not overwrite it.
func (w *words) detach() { w.args, w.texts, w.buf, w.ends = nil, nil, nil, nil }

// terms are the values that all requests of a run share.
type terms struct {
	kind          protocol.Kind
	flags         byte
	limit, weight int
	observe       bool
	lease, ticket time.Duration
	caps          engine.Caps
	pools         engine.Pools
}

func (w *words) termsOf(r *protocol.Request) terms {
	t := terms{kind: r.Kind, limit: r.Limit, observe: r.Observe, weight: r.ID.Weight, lease: r.Lease}
	switch slot := r.ID.Slot; r.Kind {
	case protocol.Ask:
		t.ticket = r.Ticket
		t.flags = bits(r.Wait, r.Unfair, r.Strict, slot, r.Newest, r.Again, r.Anew, r.Who != nil)
		if namesKeys(*r) {
			if t.kind, t.caps, t.pools = askKeyed, r.Caps, r.Pools; r.Pools != "" {
				t.kind = askPooled
			}
		}
	case protocol.Renew, protocol.Release:
		others := r.Kind == protocol.Release && r.ID.Client != w.client // it belongs to another client, or is named
		t.flags = bits(false, false, false, slot, r.Token > 0, r.Mine, r.Kind == protocol.Release && r.Pools != "", others)
	case protocol.Revoke:
		t.flags = bits(r.Wait, false, false, slot)
	case protocol.SetLimit:
		t.flags = bits(false, false, false, false, r.Pin, false, r.Auto != nil)
		t.weight = 0
		if t.pools = r.Pools; r.Pools != "" {
			t.kind = setPools
		} else if r.Caps != (engine.Caps{}) {
			t.kind = setCaps
		}
		for i, c := range r.Caps {
			if c != 0 {
				t.caps[i] = 1 + max(0, c)
			}
		}
	case protocol.SetKey:
		t.limit, t.weight = r.Cap, r.Share
	}
	return t
}

// bits returns flags as a number, the first one as its lowest bit. lua/layout.lua has their order.
func bits(flags ...bool) (b byte) {
	for i, on := range flags {
		if on {
			b |= 1 << i
		}
	}
	return b
}

// namesKeys reports whether a request names a key that shares the semaphore, or sets
// the cap of keys, or pools.
func namesKeys(r protocol.Request) bool {
	return r.Target != (protocol.Target{}) || r.Pools != "" || r.Caps != engine.Caps{} || r.Kind == protocol.SetKey || r.Kind == protocol.UnsetKey
}

// aboutPermit reports whether requests of this kind carry the id of a permit.
func aboutPermit(k protocol.Kind) bool { return k <= protocol.Revoke }

// encode returns a call as a Redis command: two words for runStep to fill in,
// then the keys and arguments of the script. With keep > 0 the server keeps the
// client's description for that long. The result is valid until the next encode.
func (w *words) encode(c protocol.Call, keep time.Duration) []any {
	w.keyed = w.keyed || slices.ContainsFunc(c.Requests, namesKeys)
	marks, ids, reports := byte(0), 0, false
	if c.Fence {
		marks = fenceMark
	}
	for i := range c.Requests {
		r := &c.Requests[i]
		reports = reports || r.Totals != nil || r.Auto != nil
		if aboutPermit(r.Kind) {
			ids++
			if r.Kind != protocol.Ask || r.Again {
				marks |= passMark
			}
		}
	}
	w.buf = appendNumber(w.buf[:0], float64(c.Number))
	w.buf = append(w.buf, marks)
	w.buf = binary.LittleEndian.AppendUint32(w.buf, uint32(ids))
	w.buf = appendNumber(w.buf, float64(c.Keep.Microseconds()))
	for rest := c.Requests; len(rest) > 0; {
		t, n := w.termsOf(&rest[0]), 1
		for n < len(rest) && w.termsOf(&rest[n]) == t {
			n++
		}
		w.buf = appendRun(w.buf, t, n)
		if t.kind == askKeyed || t.kind >= askPooled {
			for _, c := range t.caps {
				w.buf = binary.LittleEndian.AppendUint32(w.buf, uint32(c))
			}
		}
		if t.kind == askPooled || t.kind == setPools {
			w.buf = appendText(w.buf, string(t.pools))
		}
		for i := range n {
			switch r := &rest[i]; {
			case t.kind == protocol.SetKey || t.kind == protocol.UnsetKey:
				w.buf = appendName(w.buf, string(r.Key))
			case t.kind == protocol.Cooldown && r.Who != nil:
				w.buf = appendClient(w.buf, r.Who)
			case t.kind == protocol.Cooldown:
				w.buf = appendText(w.buf, w.who)
			case t.kind == protocol.Report:
				w.buf = appendTotals(w.buf, r.Totals)
			case t.kind == protocol.SetLimit && r.Auto != nil:
				w.buf = appendAuto(w.buf, r.Auto)
			case t.kind == protocol.Ask || t.kind == askKeyed || t.kind == askPooled:
				w.buf = appendNumber(w.buf, float64(r.Waited.Microseconds()))
				w.buf = binary.LittleEndian.AppendUint32(w.buf, uint32(r.Behind))
				if r.Who != nil {
					w.buf = appendClient(w.buf, r.Who)
				}
				if t.kind != protocol.Ask {
					w.buf = appendName(w.buf, r.Target.Text())
				}
			case (t.kind == protocol.Renew || t.kind == protocol.Release) && t.flags&tokenFlag != 0:
				w.buf = appendNumber(w.buf, float64(r.Token))
			}
			if t.kind == protocol.Release && rest[i].Pools != "" {
				w.buf = appendText(w.buf, string(rest[i].Pools))
			}
		}
		rest = rest[n:]
	}
	w.ends = append(w.ends[:0], len(w.buf))
	for i := range c.Requests {
		if aboutPermit(c.Requests[i].Kind) {
			w.buf = c.Requests[i].ID.Append(w.buf)
			w.ends = append(w.ends, len(w.buf))
		}
	}
	all, from := string(w.buf), 0
	w.texts = slices.Grow(w.texts[:0], len(w.ends))
	for _, end := range w.ends {
		w.texts = append(w.texts, all[from:end])
		from = end
	}
	keys := mainKeys
	switch {
	case reports:
		keys = reportingKeys
	case w.keyed:
		keys = keyedKeys
	case keep > 0:
		keys = describedKeys
	}
	args := append(w.args[:0], nil, nil, keys)
	for i := range keys {
		args = append(args, &w.keys.all[i])
	}
	if keep > 0 {
		args[2+describedKeys] = w.keys.client(w.client)
	}
	args = append(args, &w.client)
	for i := range w.texts {
		args = append(args, &w.texts[i])
	}
	if keep > 0 {
		args = append(args, &w.who, keep.Milliseconds())
	}
	w.args = args
	return args
}

func appendNumber(b []byte, n float64) []byte {
	return binary.LittleEndian.AppendUint64(b, math.Float64bits(n))
}

// appendName appends the length of a key's name, and the name.
func appendName(b []byte, name string) []byte { return append(append(b, byte(len(name))), name...) }

// appendClient appends the length of a description, and the description.
func appendClient(b []byte, c *engine.Client) []byte {
	text, _ := json.Marshal(c) // strings and numbers
	return appendText(b, string(text))
}

func appendText(b []byte, text string) []byte {
	return append(binary.LittleEndian.AppendUint32(b, uint32(len(text))), text...)
}

func appendRun(b []byte, t terms, n int) []byte {
	b = append(b, byte(t.kind), t.flags)
	b = binary.LittleEndian.AppendUint32(b, uint32(n))
	limit := uint32(t.limit)
	if t.observe {
		limit |= watched
	}
	b = binary.LittleEndian.AppendUint32(b, limit)
	b = binary.LittleEndian.AppendUint32(b, uint32(t.weight))
	b = appendNumber(b, float64(t.lease.Microseconds()))
	return appendNumber(b, float64(t.ticket.Microseconds()))
}

// The sizes of a reply's parts in bytes, and the marks in its head.
const (
	headSize   = 17
	recordSize = 29

	keepMark        = 1
	haltedMark      = 2
	unreachableMark = 4
	recalledMark    = 8
	roomMark        = 16
	capsMark        = 32
	poolsMark       = 64
	watchedMark     = 128

	watched = 1 << 31 // is added to a limit that is only watched
)

// errFenced means that the script refused a call because a later call of the
// same session had fenced it off.
var errFenced = errors.New("a later call of this session came first")

var errShort = errors.New("the script's reply is too short")

// decode reads the script's reply to a call of so many requests.
func decode(text string, requests int) (protocol.Reply, error) {
	if len(text) < headSize {
		return protocol.Reply{}, errShort
	}
	reply := protocol.Reply{Limit: int(numberAt(text)), Recheck: micros(int64(numberAt(text[8:])))}
	marks := text[headSize-1]
	reply.Keep, reply.Unreachable, reply.Recalled, reply.Room = marks&keepMark != 0, marks&unreachableMark != 0, marks&recalledMark != 0, marks&roomMark != 0
	reply.Watched, reply.Halted = marks&watchedMark != 0, marks&haltedMark != 0
	text = text[headSize:]
	if marks&capsMark != 0 {
		if len(text) < 8*len(reply.Caps) {
			return protocol.Reply{}, errShort
		}
		for i := range reply.Caps {
			reply.Caps[i], text = int(numberAt(text)), text[8:]
		}
	}
	if marks&poolsMark != 0 {
		if len(text) < 4 || len(text)-4 < int(binary.LittleEndian.Uint32([]byte(text[:4]))) {
			return protocol.Reply{}, errShort
		}
		n := 4 + binary.LittleEndian.Uint32([]byte(text[:4]))
		reply.Pools, text = engine.Pools(text[4:n]), text[n:]
	}
	if text == "" && requests > 0 {
		return reply, errFenced
	}
	reply.Answers = make([]protocol.Answer, 0, requests)
	for len(reply.Answers) < requests {
		if len(text) < recordSize {
			return protocol.Reply{}, errShort
		}
		n := int(binary.LittleEndian.Uint32([]byte(text[1:5])))
		if n < 1 || n > requests-len(reply.Answers) {
			return protocol.Reply{}, fmt.Errorf("the script's reply has %d answers for %d requests", n, requests-len(reply.Answers))
		}
		a := protocol.Answer{Status: protocol.Status(text[0]), Slot: -1}
		first, second, third := numberAt(text[5:]), numberAt(text[13:]), numberAt(text[21:])
		for i := range n {
			switch a.Status {
			case protocol.Granted:
				a.Token, a.Slot, a.Lease = int64(first)+int64(i), int(second), micros(int64(third))
			case protocol.Queued:
				a.Ticket, a.Ahead = int64(first), int(second)+i
			case protocol.Refused:
				a.Used = int(first)
			case protocol.TooHeavy:
				a.Bound, a.Depth, a.Pool = int(first), int(second), int(third)
			}
			reply.Answers = append(reply.Answers, a)
		}
		text = text[recordSize:]
	}
	if text != "" {
		reply.Notification = parseNotification(text)
	}
	return reply, nil
}

// numberAt reads the number at the start of text, which must have 8 bytes.
func numberAt(text string) float64 {
	return math.Float64frombits(binary.LittleEndian.Uint64([]byte(text[:8])))
}

// parseNotification reads the lines that the script publishes. It skips lines
// that it does not understand: a newer version may send more kinds, and a
// client can do without any of them.
func parseNotification(message string) (n protocol.Notification) {
	for line := range strings.Lines(message) {
		kind, rest, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
		switch kind {
		case "g":
			name, rest, _ := strings.Cut(rest, " ")
			token, rest, _ := strings.Cut(rest, " ")
			slot, ticket, _ := strings.Cut(rest, " ")
			var g protocol.Grant
			var errs [4]error
			g.ID, errs[0] = engine.ParseID(name)
			g.Token, errs[1] = strconv.ParseInt(token, 10, 64)
			g.Slot, errs[2] = strconv.Atoi(slot)
			g.Ticket, errs[3] = strconv.ParseInt(ticket, 10, 64)
			if errors.Join(errs[:]...) == nil {
				n.Grants = append(n.Grants, g)
			}
		case "a":
			n.Ask = true
		case "n":
			n.Renew = true
		case "r":
			if us, err := strconv.ParseInt(rest, 10, 64); err == nil {
				n.Recheck = micros(us)
			}
		case "c":
			n.Recall = true
		}
	}
	return n
}

// integer converts a number in a reply. Depending on the protocol's version,
// the server sends an integer, a string, or a float for a score.
func integer(v any) int64 {
	switch n := v.(type) {
	case int64:
		return n
	case float64:
		return int64(n)
	case string:
		if i, err := strconv.ParseInt(n, 10, 64); err == nil {
			return i
		}
		f, _ := strconv.ParseFloat(n, 64)
		return int64(f)
	}
	return 0
}

func micros(us int64) time.Duration { return time.Duration(us) * time.Microsecond }
