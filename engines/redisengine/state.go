package redisengine

import (
	"cmp"
	"context"
	"encoding/binary"
	"encoding/json"
	"math"
	"slices"
	"strings"

	"github.com/redis/go-redis/v9"

	"sema/engine"
	"sema/internal/ledger"
)

// wholeState is how many permits and tickets are read at the most in one step,
// and so in each part of a larger semaphore. More would keep the server from others
// for longer; docs/data/redis.md has the measurement.
const wholeState = 500

// State implements engine.Session.
//
// A semaphore in which up to 500 hold and wait is read in one step: its state
// is that of one moment. A larger one is read in parts, so that the server
// serves others in between. Then:
//
//   - Limit, Pinned, Paused and Used are of the first moment. Used may differ from
//     the weight of Holders. It may count a lease that had ended, if a step
//     removed the permit meanwhile.
//   - Each holder and each waiter is as it was at some moment during the call.
//     A client that held or waited all the time, or waited and then held, is there
//     exactly once. One that came or left meanwhile may be there, or not.
//   - If another server takes over meanwhile, by a failover or a slot that moves,
//     some may be missing.
func (s *session) State(ctx context.Context) (engine.State, error) {
	st, err := apart(ctx, func() (engine.State, error) { return s.readState(ctx) })
	if err != nil {
		e := s.caller.wrap("state", s.name, err)
		e.NotExecuted = true
		return engine.State{}, e
	}
	return st, nil
}

func (s *session) readState(ctx context.Context) (engine.State, error) {
	values, err := stateScript().Run(ctx, s.caller.rdb, s.keys.all(), s.caller.part).Slice()
	if err != nil {
		return engine.State{}, err
	}
	r, err := decodeState(values)
	if err == nil && !r.whole {
		err = s.readParts(ctx, r)
	}
	if err != nil {
		return engine.State{}, err
	}
	st, clients := r.state()
	return st, s.readClients(ctx, &st, clients)
}

// clock is the server's time. It is a script with a key because such a pipeline goes
// to the key's master, also if the client reads from replicas: HSCAN's cursor
// means nothing to another server.
const clock = `return redis.call('TIME')`

// readParts reads the permits and tickets in parts, with HSCAN through the state.
// A permit stays in its field from its ticket to its release, and HSCAN returns
// what stays at least once; renewals change nothing there. Ranges of the zsets
// would miss what moves in them. Each round trip asks for the ends of the leases
// that the one before has found. Plain commands take the server a fraction
// of the time that a script takes for the same.
func (s *session) readParts(ctx context.Context, r *reading) error {
	var found, holders []string // of the last part: ids and values; the ids of permits
	cursor := uint64(0)
	for last := false; ; {
		if err := ctx.Err(); err != nil {
			return err
		}
		var now *redis.Cmd
		var ends *redis.FloatSliceCmd
		var next *redis.ScanCmd
		_, err := s.caller.rdb.Pipelined(ctx, func(p redis.Pipeliner) error {
			now = p.Eval(ctx, clock, s.keys.main[:1])
			if len(holders) > 0 {
				ends = p.ZMScore(ctx, s.keys.main[1], holders...)
			}
			if !last {
				next = p.HScan(ctx, s.keys.main[0], cursor, "", int64(s.caller.part))
			}
			return nil
		})
		if err != nil {
			return err
		}
		time, _ := now.Slice()
		if len(time) != 2 {
			return errShort
		}
		var scores []float64
		if ends != nil {
			scores = ends.Val()
		}
		if len(scores) != len(holders) {
			return errShort
		}
		r.part(scalar(time[0])*1e6+scalar(time[1]), found, scores)
		if last {
			return nil
		}
		found, cursor = next.Val()
		last = cursor == 0
		holders = permits(found)
	}
}

// readClients adds the clients' descriptions.
func (s *session) readClients(ctx context.Context, st *engine.State, clients []string) error {
	who := make(map[string]engine.Client, len(clients))
	for part := range slices.Chunk(clients, wholeState) {
		if err := ctx.Err(); err != nil {
			return err
		}
		texts := make([]*redis.StringCmd, len(part))
		_, err := s.caller.rdb.Pipelined(ctx, func(p redis.Pipeliner) error {
			for i, c := range part {
				texts[i] = p.Get(ctx, s.keys.client(c))
			}
			return nil
		})
		if err != nil && err != redis.Nil {
			return err
		}
		for i, c := range part {
			var is engine.Client
			_ = json.Unmarshal([]byte(texts[i].Val()), &is) // somebody else's words: empty if not understood
			who[c] = is
		}
	}
	describe(st, func(client string) engine.Client { return who[client] })
	return nil
}

// describe adds the clients' descriptions, but for named permits and tickets,
// which have their own.
func describe(st *engine.State, who func(client string) engine.Client) {
	for i := range st.Holders {
		if h := &st.Holders[i]; h.Client == (engine.Client{}) {
			h.Client = who(clientOf(h.ID))
		}
	}
	for i := range st.Waiters {
		if w := &st.Waiters[i]; w.Client == (engine.Client{}) {
			w.Client = who(clientOf(w.ID))
		}
	}
}

// clientOf is the client of a valid id.
func clientOf(id string) string {
	client, _, _ := strings.Cut(id, "-")
	return client
}

// reading is a state that is put together.
type reading struct {
	ledger.Snapshot              // without permits and tickets
	now             int64        // the moment of it
	used            int          // the weight held then
	auto            *engine.Auto // what a controller said; nil: none did
	whole           bool         // all is of that moment
	entries         map[string]entry
}

// entry is what was last read of a permit or ticket, and when.
type entry struct {
	value string
	end   int64 // of a permit's lease
	now   int64
}

// The sizes of what the state has of permits and tickets. What is longer is a
// named one, and has a tail.
const (
	permitSize = 25
	ticketSize = 22
)

func isPermit(value string) bool {
	return len(value) >= permitSize && strings.IndexByte("hrHR", value[0]) >= 0
}
func isTicket(value string) bool {
	return len(value) >= ticketSize && (value[0] == 'q' || value[0] == 'Q')
}

// keyOf is the key of a permit or ticket whose numbers take size bytes, and its tail.
func keyOf(value string, size int) (key, tail string) {
	if value[0] >= 'a' {
		return "", value[size:]
	}
	key, tail, _ = strings.Cut(value[size:], "\x00")
	return key, tail
}

// described reads the tail of a named permit or ticket.
func described(tail string) (who engine.Client, ok bool) {
	_, text, _ := strings.Cut(tail, "\x00") // the session
	_, text, ok = strings.Cut(text, "\x00") // its rival
	if !ok {
		return who, false
	}
	_ = json.Unmarshal([]byte(text), &who) // somebody else's words: empty if not understood
	return who, true
}

// permits are the ids of permits among what HSCAN has found.
func permits(found []string) (ids []string) {
	for i := 0; i+1 < len(found); i += 2 {
		if isPermit(found[i+1]) {
			ids = append(ids, found[i])
		}
	}
	return ids
}

// decodeState reads the answer of state.lua.
func decodeState(v []any) (*reading, error) {
	if len(v) != 10 {
		return nil, errShort
	}
	now, flags := scalar(v[0]), scalar(v[2])
	r := &reading{now: now, used: int(scalar(v[3])), whole: scalar(v[4]) == 1, entries: map[string]entry{}}
	r.Snapshot = ledger.Snapshot{Limit: int(scalar(v[1])), Pinned: flags&1 != 0, Paused: flags&4 != 0, Keep: math.MaxInt64}
	if flags&8 != 0 {
		r.decodeKeys(v[8])
	}
	if auto, _ := v[9].(string); auto != "" {
		r.auto = decodeAuto(now, auto)
	}
	ids, _ := v[5].([]any)
	values, _ := v[6].([]any)
	ends, _ := v[7].([]any)
	if len(values) != len(ids) {
		return nil, errShort
	}
	for i := range ids {
		id, _ := ids[i].(string)
		value, _ := values[i].(string)
		e := entry{value: value, now: now}
		if i < len(ends) {
			e.end = scalar(ends[i])
		}
		r.entries[id] = e
	}
	return r, nil
}

// decodeKeys reads what state.lua has of keys.
func (r *reading) decodeKeys(keys any) {
	r.Keyed = true
	fields, _ := keys.([]any)
	for i := 0; i+1 < len(fields); i += 2 {
		name, _ := fields[i].(string)
		value, _ := fields[i+1].(string)
		number := func(at int) int64 { return int64(numberAt(value[at:])) }
		switch {
		case name == "" && len(value) >= 48:
			r.PerKey, r.Epoch = int(number(0)), int(number(24))
		case strings.HasPrefix(name, "k") && len(value) >= 66:
			k := ledger.RecordedKey{Name: name[1:], Ruled: value[32] == 1, Base: number(34), Seq: number(42), Full: value[33] == 2, Epoch: int(number(50))}
			k.Cap, k.Share = int(number(16)), int(number(24))
			r.Keys = append(r.Keys, k)
		}
	}
}

// part adds what HSCAN has found, ids and values. ends are those of the permits
// among them, 0 for one that is gone by now. What is read again replaces what was
// read before.
func (r *reading) part(now int64, found []string, ends []float64) {
	for i := 0; i+1 < len(found); i += 2 {
		e := entry{value: found[i+1], now: now}
		if isPermit(e.value) {
			e.end, ends = int64(ends[0]), ends[1:]
		}
		r.entries[found[i]] = e
	}
}

// state is what was read, as a ledger has it, and the clients in it. Leases that were read
// later end as much earlier: so what is left of them is as it was read.
func (r *reading) state() (st engine.State, clients []string) {
	s, ended := r.Snapshot, 0
	waits := map[string]bool{}
	for name, e := range r.entries {
		id, err := engine.ParseID(name)
		if err != nil {
			continue // not ours
		}
		later, named := e.now-r.now, false
		number := func(at int) int64 { return int64(numberAt(e.value[at:])) }
		is := ledger.Recorded{ID: id}
		switch {
		case isPermit(e.value) && e.end > 0:
			is.End, is.Token, is.Since, is.Slot, is.Revoked = e.end-later, number(1), number(9)-later, int(number(17)), e.value[0]|0x20 == 'r'
			var tail string
			is.Key, tail = keyOf(e.value, permitSize)
			is.Client, named = described(tail)
			s.Holders = append(s.Holders, is)
			if e.end <= r.now {
				ended += id.Weight // no step has counted it out
			}
		case isTicket(e.value):
			is.End, is.Place = number(1)-later, number(9)
			is.Behind = int(binary.LittleEndian.Uint32([]byte(e.value[17:])))
			var tail string
			is.Key, tail = keyOf(e.value, ticketSize)
			is.Client, named = described(tail)
			s.Waiters = append(s.Waiters, is)
			waits[is.Key] = true
		default:
			continue
		}
		if !named && is.End > r.now {
			clients = append(clients, id.Client)
		}
	}
	slices.SortFunc(s.Waiters, func(a, b ledger.Recorded) int {
		return cmp.Or(cmp.Compare(a.Place, b.Place), strings.Compare(a.ID.String(), b.ID.String()))
	})
	s.Keys = slices.DeleteFunc(slices.Clone(s.Keys), func(k ledger.RecordedKey) bool { return !k.Ruled && !waits[k.Name] })
	for i := range s.Keys {
		s.Keys[i].Full = s.Keys[i].Full && waits[s.Keys[i].Name]
	}
	st = ledger.Load(s).State(r.now)
	st.Auto = r.auto
	if !r.whole {
		st.Used = r.used - ended
	}
	slices.Sort(clients)
	return st, slices.Compact(clients)
}
