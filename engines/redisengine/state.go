package redisengine

import (
	"cmp"
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/redis/go-redis/v9"

	"sema/engine"
	"sema/internal/ledger"
	"sema/internal/protocol"
)

// defaultReadSize is the largest number of permits and tickets that State reads in
// one step. It reads a larger semaphore in parts of this size. A larger number
// would block the server for longer; docs/data/redis.md has the measurement.
const defaultReadSize = 500

// State implements protocol.Session.
//
// With up to 500 permits and tickets, the semaphore is read in one step: the
// state is that of one moment. A larger semaphore is read in parts, so that the
// server serves others in between. Then:
//
//   - Limit, Pinned, Paused and Used are those of the first moment. Used may
//     differ from the weight of Holders. It may include a permit whose lease had
//     ended, if a step removed that permit meanwhile.
//   - Each holder and each waiter is as it was at some moment during the call. A
//     client that held or waited all the time, or waited and then held, appears
//     exactly once. A client that came or left meanwhile may be missing.
//   - If another server takes over meanwhile, by a failover or the move of a
//     slot, some holders and waiters may be missing.
func (s *session) State(ctx context.Context) (engine.State, error) {
	st, err := cancellable(ctx, func() (engine.State, error) { return s.readState(ctx) })
	if err != nil {
		return engine.State{}, s.caller.wrap("state", s.name, err)
	}
	return st, nil
}

func (s *session) readState(ctx context.Context) (engine.State, error) {
	values, err := stateScript().Run(ctx, s.caller.rdb, s.keys.ofState(), s.caller.readSize).Slice()
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
	st := r.state()
	return st, s.readClients(ctx, &st)
}

// clock returns the server's time in microseconds. A script with a key makes the whole pipeline go
// to the key's master, even if the client reads from replicas. HSCAN needs that: its
// cursor is valid on one server only.
const clock = `local t = redis.call('TIME') return t[1] * 1000000 + t[2]`

// readParts reads the permits and tickets in parts, with HSCAN on the state.
// HSCAN returns each field that exists during the whole scan at least once, and
// an id keeps its field from the ticket to the release. Ranges of the zsets would
// miss entries that move during the scan. Each round trip also reads the lease
// ends of the permits found by the one before. The commands are plain ones: a
// script would block the server several times as long.
func (s *session) readParts(ctx context.Context, r *reading) error {
	var found, holders []string // of the last part: ids and values; the ids of its permits
	cursor := uint64(0)
	for last := false; ; {
		if err := ctx.Err(); err != nil {
			return err
		}
		var now *redis.Cmd
		var ends *redis.FloatSliceCmd
		var next *redis.ScanCmd
		_, err := s.caller.rdb.Pipelined(ctx, func(p redis.Pipeliner) error {
			now = p.Eval(ctx, clock, s.keys.all[:1])
			if len(holders) > 0 {
				ends = p.ZMScore(ctx, s.keys.holders(), holders...)
			}
			if !last {
				next = p.HScan(ctx, s.keys.state(), cursor, "", int64(s.caller.readSize))
			}
			return nil
		})
		if err != nil {
			return err
		}
		var scores []float64
		if ends != nil {
			scores = ends.Val()
		}
		if len(scores) != len(holders) {
			return errShort
		}
		r.add(integer(now.Val()), found, scores)
		if last {
			return nil
		}
		found, cursor = next.Val()
		last = cursor == 0
		holders = permits(found)
	}
}

// undescribed returns the empty descriptions in st, by client. Named permits and tickets
// have descriptions of their own.
func undescribed(st *engine.State) map[string][]*engine.Client {
	list := map[string][]*engine.Client{}
	add := func(id string, c *engine.Client) {
		if *c == (engine.Client{}) {
			client, _, _ := strings.Cut(id, "-")
			list[client] = append(list[client], c)
		}
	}
	for i := range st.Holders {
		add(st.Holders[i].ID, &st.Holders[i].Client)
	}
	for i := range st.Waiters {
		add(st.Waiters[i].ID, &st.Waiters[i].Client)
	}
	return list
}

// readClients reads the missing descriptions of clients and adds them to st.
func (s *session) readClients(ctx context.Context, st *engine.State) error {
	missing := undescribed(st)
	for part := range slices.Chunk(slices.Collect(maps.Keys(missing)), defaultReadSize) {
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
			var who engine.Client
			_ = json.Unmarshal([]byte(texts[i].Val()), &who) // foreign text: empty if it cannot be read
			for _, to := range missing[c] {
				*to = who
			}
		}
	}
	return nil
}

// reading is a state during its assembly from parts.
type reading struct {
	ledger.Snapshot              // without permits and tickets
	now             int64        // the server's time when it was read
	used            int          // the weight held at now
	auto            *engine.Auto // what the controller of the limit said; nil: there is none
	whole           bool         // the first step read all
	entries         map[string]entry
}

// entry is the last value that was read of a permit or ticket, and the time.
type entry struct {
	value string
	end   int64 // of a permit: the end of its lease
	now   int64
}

// The sizes in bytes of PERMIT and TICKET in the state, and of KEYED and KEY in keys. A longer
// permit or ticket has a key's name or the tail of a named permit behind it.
const (
	permitSize = 25
	ticketSize = 22
	keyedSize  = 80
	keySize    = 82
)

func isPermit(value string) bool {
	return len(value) >= permitSize && strings.IndexByte("hrHR", value[0]) >= 0
}
func isTicket(value string) bool {
	return len(value) >= ticketSize && (value[0] == 'q' || value[0] == 'Q')
}

// behind reads what follows a permit or ticket, which has size bytes: its key, and the
// description in the tail of a named one.
func behind(value string, size int) (target protocol.Target, who engine.Client) {
	text := value[size:]
	if value[0] < 'a' {
		counted, rest, _ := strings.Cut(text, "\x00")
		counted, _, _ = strings.Cut(counted, "\x03") // what it has spent of rates
		target, text = protocol.ParseTarget(counted), rest
	}
	_, text, _ = strings.Cut(text, "\x00") // the session
	_, text, _ = strings.Cut(text, "\x00") // its rival
	_ = json.Unmarshal([]byte(text), &who) // empty without a tail, and if foreign text cannot be read
	return target, who
}

// permits returns the ids of the permits in a result of HSCAN.
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
	if len(v) != 11 {
		return nil, errShort
	}
	now, flags := integer(v[0]), integer(v[2])
	r := &reading{now: now, used: int(integer(v[3])), whole: integer(v[4]) == 1, entries: map[string]entry{}}
	r.Snapshot = ledger.Snapshot{Limit: int(integer(v[1])), Pinned: flags&1 != 0, Paused: flags&4 != 0, Keep: math.MaxInt64}
	if flags&8 != 0 {
		r.decodeKeys(v[8])
	}
	if auto, _ := v[9].(string); auto != "" {
		r.auto = decodeAuto(now, auto)
	}
	more, _ := v[10].(string)
	if flags&64 != 0 && len(more) >= 4 {
		n := 4 + int(binary.LittleEndian.Uint32([]byte(more[:4])))
		r.Observed, more = decodeObserved(more[4:min(n, len(more))]), more[min(n, len(more)):]
	}
	if cooldown := more; len(cooldown) >= 8 {
		r.Cooldown = int64(numberAt(cooldown))
		_ = json.Unmarshal([]byte(cooldown[8:]), &r.CooledBy)
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
			e.end = integer(ends[i])
		}
		r.entries[id] = e
	}
	return r, nil
}

// decodeObserved reads OBSERVED of layout.lua.
func decodeObserved(text string) *ledger.Observed {
	is := &ledger.Observed{}
	counts, levels, _ := strings.Cut(text, ";")
	_, _ = fmt.Sscan(counts, &is.WouldWait, &is.ForLimit, &is.Most)
	for part := range strings.SplitSeq(levels, ",") {
		v := ledger.Level{}
		if _, err := fmt.Sscanf(part, "%d=%d", &v.Limit, &v.Grants); err == nil {
			is.Levels = append(is.Levels, v)
		}
	}
	slices.SortFunc(is.Levels, func(a, b ledger.Level) int { return a.Limit - b.Limit })
	return is
}

// decodeKeys reads the fields of the hash keys, as state.lua returns them.
func (r *reading) decodeKeys(keys any) {
	r.Keyed = true
	fields, _ := keys.([]any)
	for i := 0; i+1 < len(fields); i += 2 {
		name, _ := fields[i].(string)
		value, _ := fields[i+1].(string)
		number := func(at int) int64 { return int64(numberAt(value[at:])) }
		switch {
		case name == "" && len(value) >= keyedSize:
			for i := range r.Caps {
				r.Caps[i] = int(number(8 * i))
			}
			r.Time, r.Seq, r.Epoch = number(24), number(32), int(number(40))
			parts := append(strings.Split(value[keyedSize:], "\x00"), "", "", "")
			r.Pools, r.Rates = engine.Pools(parts[0]), map[string]ledger.Rate{}
			for part := range strings.SplitSeq(parts[3], ",") {
				pool, numbers, _ := strings.Cut(part, "=")
				is := ledger.Rate{}
				if _, err := fmt.Sscan(numbers, &is.Full, &is.Given); err == nil {
					r.Rates[pool] = is
				}
			}
		case strings.HasPrefix(name, "k") && len(value) >= keySize:
			k := ledger.RecordedKey{Name: name[1:], Ruled: value[32]&1 != 0, Above: value[32]&2 != 0, Start: number(34), Seq: number(42), Blocked: value[33] == 2, Epoch: int(number(50))}
			k.Cap, k.Share, k.Time = int(number(16)), int(number(24)), number(66)
			k.Set, k.Name = protocol.CutClass(k.Name)
			r.Keys = append(r.Keys, k)
		}
	}
}

// add adds a result of HSCAN: ids and values. ends has the lease ends of the
// permits among them, 0 for a permit that is gone by now. A later value of an id
// replaces the earlier one.
func (r *reading) add(now int64, found []string, ends []float64) {
	for i := 0; i+1 < len(found); i += 2 {
		e := entry{value: found[i+1], now: now}
		if isPermit(e.value) {
			e.end, ends = int64(ends[0]), ends[1:]
		}
		r.entries[found[i]] = e
	}
}

// state returns the assembled state. All times are moved to the moment r.now: a lease that
// was read later gets an earlier end, so that the time left stays as it was read.
func (r *reading) state() engine.State {
	s, ended := r.Snapshot, 0
	waits := map[string]bool{}
	for name, e := range r.entries {
		id, err := engine.ParseID(name)
		if err != nil {
			continue // not ours
		}
		later := e.now - r.now
		number := func(at int) int64 { return int64(numberAt(e.value[at:])) }
		is := ledger.Recorded{ID: id}
		switch {
		case isPermit(e.value) && e.end > 0:
			is.End, is.Token, is.Since, is.Slot, is.Revoked = e.end-later, number(1), number(9)-later, int(number(17)), e.value[0]|0x20 == 'r'
			is.Target, is.Client = behind(e.value, permitSize)
			s.Holders = append(s.Holders, is)
			if e.end <= r.now {
				ended += id.Weight // no step has removed it yet
			}
		case isTicket(e.value):
			is.End, is.Place = number(1)-later, number(9)
			is.Behind = int(binary.LittleEndian.Uint32([]byte(e.value[17:])))
			is.Target, is.Client = behind(e.value, ticketSize)
			s.Waiters = append(s.Waiters, is)
			waits[string(is.Key)], waits[string(is.Key)+engine.KeySeparator] = true, true
			for above := is.Key; above != ""; above = above.Above() {
				waits[string(above)] = true
			}
		}
	}
	slices.SortFunc(s.Waiters, func(a, b ledger.Recorded) int {
		return cmp.Or(cmp.Compare(a.Place, b.Place), strings.Compare(a.ID.String(), b.ID.String()))
	})
	s.Keys = slices.DeleteFunc(slices.Clone(s.Keys), func(k ledger.RecordedKey) bool { return !k.Ruled && !k.Above && !waits[k.Name] })
	slices.SortFunc(s.Keys, func(a, b ledger.RecordedKey) int {
		return cmp.Or(strings.Compare(a.Name, b.Name), strings.Compare(a.Set, b.Set))
	})
	for i := range s.Keys {
		s.Keys[i].Blocked = s.Keys[i].Blocked && waits[s.Keys[i].Name]
	}
	st := ledger.Load(s).State(r.now)
	st.Auto = r.auto
	if !r.whole {
		st.Used = r.used - ended
	}
	return st
}
