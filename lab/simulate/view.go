package simulate

import (
	"cmp"
	"math"
	"strings"

	"sema/engine"
	"sema/internal/ledger"
)

// view is what a ledger has written at one moment. The view adds up the weights and sorts
// the keys itself, as a judge of the ledger. It does not change.
type view struct {
	ledger.Snapshot
	used    int       // the weight that is held
	root    *tenant   // the semaphore: its cap is the limit
	tenants []*tenant // the keys that hold, wait or have a rule, and those above them
}

// tenant is one of the keys that share a semaphore, with all below it.
type tenant struct {
	ledger.RecordedKey
	up    *tenant // nil: it is the root
	below []*tenant
	most  int // how much weight it may hold
	held  int
	queue []*ledger.Recorded // of a leaf, by place
}

// see is the view of a snapshot.
func see(s ledger.Snapshot) *view {
	v := &view{Snapshot: s, root: &tenant{RecordedKey: ledger.RecordedKey{Above: true, Time: s.Time}, most: s.Limit}}
	for _, k := range s.Keys {
		v.tenant(k.Name).RecordedKey = k
	}
	for i := range s.Holders {
		weight := s.Holders[i].ID.Weight
		v.used += weight
		for n := v.leaf(s.Holders[i].Key); n != nil; n = n.up {
			n.held += weight
		}
	}
	for i := range s.Waiters {
		t := v.leaf(s.Waiters[i].Key)
		t.queue = append(t.queue, &s.Waiters[i])
	}
	for _, t := range v.tenants {
		t.most = v.capOf(t)
	}
	return v
}

// find is a key that the view has; nil if it has none of this name.
func (v *view) find(name string) *tenant {
	for _, t := range v.tenants {
		if t.Name == name {
			return t
		}
	}
	return nil
}

// tenant finds a key, or makes it, with those above it.
func (v *view) tenant(name string) *tenant {
	t := v.find(name)
	if t == nil {
		up := v.root
		if i := strings.LastIndex(name, engine.KeySeparator); i >= 0 {
			up = v.tenant(name[:i])
		}
		t = &tenant{RecordedKey: ledger.RecordedKey{Name: name}, up: up}
		up.below = append(up.below, t)
		v.tenants = append(v.tenants, t)
	}
	return t
}

// leaf is where callers of a key queue: beside the keys below it, if those hold or wait.
func (v *view) leaf(key string) *tenant {
	if t := v.tenant(key); !t.Above {
		return t
	}
	return v.tenant(key + engine.KeySeparator)
}

// leafOf is the leaf of a permit or ticket; nil if there is none of this id.
func (v *view) leafOf(id engine.ID) *tenant {
	if r := v.entry(id); r != nil {
		return v.leaf(r.Key)
	}
	return nil
}

// capOf is how much weight a key may hold: its own cap, or that of all keys of its depth.
func (v *view) capOf(t *tenant) int {
	own := t.Name == "" || strings.HasSuffix(t.Name, engine.KeySeparator)
	switch depth := strings.Count(t.Name, engine.KeySeparator); {
	case t.Cap > 0:
		return t.Cap
	case !own && v.Caps[depth] > 0:
		return v.Caps[depth]
	}
	return engine.MaxLimit
}

// key is the key by which callers know a leaf.
func (t *tenant) key() string { return strings.TrimSuffix(t.Name, engine.KeySeparator) }

// lacks reports whether a key must give back something before it may have a weight. A weight
// beyond the cap is not held up by that: its ticket is dropped.
func (t *tenant) lacks(weight int) bool { return weight <= t.most && weight > t.most-t.held }

// shares is the key's share: its own, or the default.
func (t *tenant) shares() int { return cmp.Or(t.Share, engine.DefaultShare) }

// level is how many whole shares a key holds if it holds a weight.
func (t *tenant) level(held int) int { return held * engine.DefaultShare / t.shares() }

// cost is how much virtual time a weight takes of a key: 1000 for each share of it, 1 at
// the least.
func (t *tenant) cost(weight int) int64 { return max(1, int64(weight)*1000/int64(t.shares())) }

// tag is the virtual time after a weight that the key is served next.
func (t *tenant) tag(weight int) int64 { return t.Base + t.cost(weight) }

// standing is a key whose first ticket may be served.
type standing struct {
	*tenant
	leaf *tenant // that has the ticket
}

func (s standing) first() *ledger.Recorded { return s.leaf.queue[0] }

// byTurn is the order of the keys below one.
func byTurn(a, b standing) int {
	return cmp.Or(cmp.Compare(a.level(a.held), b.level(b.held)), cmp.Compare(a.tag(a.first().ID.Weight), b.tag(b.first().ID.Weight)), cmp.Compare(a.Seq, b.Seq))
}

// next is the leaf below a key, or the key itself, that is served first; nil if there is none.
// Of the keys below it those count that may.
func (t *tenant) next(may func(standing) bool) *tenant {
	if len(t.queue) > 0 {
		return t
	}
	var first standing
	for _, k := range t.below {
		s := standing{k, k.next(may)}
		if s.leaf != nil && may(s) && (first.tenant == nil || byTurn(s, first) < 0) {
			first = s
		}
	}
	return first.leaf
}

// notFull picks the keys that the ledger does not say to be full.
func notFull(s standing) bool { return !s.Full }

// hasRoom picks the keys that do not hold up their first ticket. One below may do so, and the ledger
// has not looked yet.
func hasRoom(s standing) bool {
	weight := s.first().ID.Weight
	for n := s.leaf; n != s.tenant; n = n.up {
		if weight > n.most-n.held {
			return true
		}
	}
	return !s.lacks(weight)
}

// inTurn is the leaf of the ticket that a key is served first; nil if the key is not in turn:
// nobody waits, or it is full, or all below it are.
func (t *tenant) inTurn() *tenant {
	if t.Full {
		return nil
	}
	return t.next(notFull)
}

// Next is the ticket that gets the next free weight; ok is false if none could have it.
func (v *view) Next() (id engine.ID, ok bool) {
	t := v.root.inTurn()
	if t == nil {
		return engine.ID{}, false
	}
	return t.queue[0].ID, true
}

// EachInTurn calls f for each leaf in turn, with its first ticket. A key above it may be full.
func (v *view) EachInTurn(f func(leaf *tenant, first engine.ID)) {
	for _, t := range v.tenants {
		if len(t.queue) > 0 && !t.Full {
			f(t, t.queue[0].ID)
		}
	}
}

// Room reports whether no leaf is in turn.
func (v *view) Room() bool {
	room := true
	v.EachInTurn(func(*tenant, engine.ID) { room = false })
	return room
}

// KeyLoad is what a key holds, and may hold.
func (v *view) KeyLoad(name string) (held, most int) {
	if t := v.find(name); t != nil {
		return t.held, t.most
	}
	return 0, v.capOf(&tenant{RecordedKey: ledger.RecordedKey{Name: name}})
}

// PathLoad is the least room on the path of a key, and the most weight that a caller of it may
// have. The semaphore itself counts for the latter alone.
func (v *view) PathLoad(key string) (room, most int) {
	room, most = engine.MaxLimit, v.Limit
	for _, name := range path(key) {
		h, m := v.KeyLoad(name)
		room, most = min(room, m-h), min(most, m)
	}
	return room, most
}

// path are the names of a key and of those above it, from the outermost.
func path(key string) (names []string) {
	if key == "" {
		return []string{""}
	}
	for i := range engine.Key(key).Names() {
		names = append(names, string(engine.Key(key).First(i+1)))
	}
	return names
}

// recorded finds a permit or ticket in a list; nil if there is none.
func recorded(list []ledger.Recorded, id engine.ID) *ledger.Recorded {
	for i := range list {
		if list[i].ID == id {
			return &list[i]
		}
	}
	return nil
}

// entry is the permit or the ticket of an id; nil if there is none.
func (v *view) entry(id engine.ID) *ledger.Recorded {
	if h := recorded(v.Holders, id); h != nil {
		return h
	}
	return recorded(v.Waiters, id)
}

// KeyOf is the key of a permit or ticket; "" if there is none.
func (v *view) KeyOf(id engine.ID) string {
	if r := v.entry(id); r != nil {
		return r.Key
	}
	return ""
}

// LeaseEnd is when the lease of a permit ends; ok is false if there is no such permit.
func (v *view) LeaseEnd(id engine.ID) (end int64, ok bool) {
	if h := recorded(v.Holders, id); h != nil {
		return h.End, true
	}
	return 0, false
}

// Waits reports whether there is a ticket of this id.
func (v *view) Waits(id engine.ID) bool { return recorded(v.Waiters, id) != nil }

// Queues reports whether a ticket would be served in its turn: its client has asked in time.
func (v *view) Queues(now int64, id engine.ID) bool {
	t := recorded(v.Waiters, id)
	return t != nil && endOf(t) > now
}

// endOf is when a lease or a ticket ends. A ticket that lasts has no end.
func endOf(r *ledger.Recorded) int64 {
	if r.Lease > 0 {
		return math.MaxInt64
	}
	return r.End
}

// Each calls f for every permit and every ticket.
func (v *view) Each(f func(id engine.ID, end int64, detached bool)) {
	for _, list := range [][]ledger.Recorded{v.Holders, v.Waiters} {
		for i := range list {
			f(list[i].ID, endOf(&list[i]), list[i].Detached)
		}
	}
}

// Callers is how many callers of a client wait: its tickets, and those behind them.
func (v *view) Callers(client string) (n int) {
	for i := range v.Waiters {
		if t := &v.Waiters[i]; t.ID.Client == client {
			n += 1 + t.Behind
		}
	}
	return n
}

// NextEnd is when the first lease ends; ok is false without any.
func (v *view) NextEnd() (end int64, ok bool) {
	for i := range v.Holders {
		if h := &v.Holders[i]; !ok || h.End < end {
			end, ok = h.End, true
		}
	}
	return end, ok
}
