package simulate

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"strings"

	"sema/engine"
	"sema/internal/ledger"
	"sema/internal/protocol"
)

// view is what a ledger has written at one moment. The view adds up the weights and sorts
// the keys itself, as a judge of the ledger. It does not change.
type view struct {
	ledger.Snapshot
	enforced int            // the limit; Limit is all that there may be while that is only watched
	used     int            // the weight that is held
	taken    map[string]int // what is used of each pool
	standing *round         // which classes are blocked, as the ledger says; nil: not looked at yet
	root     *tenant        // the semaphore: its cap is the limit
	tenants  []*tenant      // the keys that hold, wait or have a rule, and those above them
}

// tenant is one of the keys that share a semaphore, with all below it.
type tenant struct {
	ledger.RecordedKey
	up      *tenant // nil: it is the root
	below   []*tenant
	most    int            // how much weight it may hold
	held    int            // weight
	with    map[string]int // the weight of permits that have some of a pool, by pool
	classes []*class       // by the names of the pools
}

// class is what waits at a key, or below it, for the same pools.
type class struct {
	*tenant
	set       string             // the names of the pools
	queue     []*ledger.Recorded // of a leaf, by place
	base, seq int64
	full      bool // the ledger says that it is blocked
	epoch     int
}

// see is the view of a snapshot at a time.
func see(s ledger.Snapshot, now int64) *view {
	enforced := s.Limit
	if s.Observed != nil {
		s.Limit = engine.MaxLimit
	}
	v := &view{Snapshot: s, enforced: enforced, taken: map[string]int{}, root: &tenant{RecordedKey: ledger.RecordedKey{Above: true, Time: s.Time}, most: s.Limit}}
	for _, k := range s.Keys {
		t := v.tenant(k.Name)
		if k.Set == "" {
			t.RecordedKey = k
		}
		if k.Seq > 0 {
			n := t.class(k.Set)
			n.base, n.seq, n.full, n.epoch = k.Start, k.Seq, k.Blocked, k.Epoch
		}
	}
	for i := range s.Holders {
		weight, takes := s.Holders[i].ID.Weight, takesOf(&s.Holders[i])
		v.used += weight
		for pool, n := range takes {
			if !v.rate(pool) {
				v.taken[pool] += n
			}
		}
		for n := v.leaf(s.Holders[i].Key); n != nil; n = n.up {
			n.held += weight
			for pool := range takes {
				if n.with == nil {
					n.with = map[string]int{}
				}
				n.with[pool] += weight
			}
		}
	}
	for pool := range s.Rates {
		if v.rate(pool) {
			v.taken[pool] = v.missing(pool, now)
		}
	}
	for i := range s.Waiters {
		set, t := s.Waiters[i].Takes.Names(), v.leaf(s.Waiters[i].Key)
		n := t.class(set)
		n.queue = append(n.queue, &s.Waiters[i])
		for ; t != nil; t = t.up {
			t.class(set)
		}
	}
	for _, t := range v.tenants {
		t.most = v.capOf(t)
	}
	return v
}

// rate reports whether a pool comes back with time.
func (v *view) rate(pool string) bool { return v.Pools.Amount(pool).Per > 0 }

// amountOf is how much there may be used of a pool.
func (v *view) amountOf(pool string) int {
	if v.Observed != nil {
		return engine.MaxLimit
	}
	return v.Pools.Of(pool)
}

// rated reports whether any pool does.
func (v *view) rated() bool {
	for pool := range v.Pools.All() {
		if v.rate(pool) {
			return true
		}
	}
	return false
}

// missing is how much of a rate has not come back at a time.
func (v *view) missing(pool string, now int64) int { return int(math.Ceil(v.units(pool, now))) }

// units is the same, with fractions.
func (v *view) units(pool string, now int64) float64 {
	if !v.rate(pool) {
		return 0
	}
	return max(0, v.Rates[pool].Full-float64(now)) / v.unit(pool)
}

// unit is in how many microseconds one comes back of a rate.
func (v *view) unit(pool string) float64 {
	a := v.Pools.Amount(pool)
	return float64(a.Per.Microseconds()) / float64(a.Back)
}

// spend takes n of a rate, rounded up as numbers are, and returns how much of it is out then.
func (v *view) spend(pool string, n int, now int64) int {
	r, more := v.Rates[pool], v.unit(pool)*float64(n)
	was := max(r.Full, float64(now))
	if r.Full = was + more; r.Full-was < more {
		r.Full += 0.5
	}
	v.Rates[pool] = r
	return v.missing(pool, now)
}

// takesOf is what a permit or ticket takes of pools.
func takesOf(r *ledger.Recorded) map[string]int { return r.Takes.Map() }

// class finds a key's class of a set of pools, or makes it.
func (t *tenant) class(set string) *class {
	i, ok := slices.BinarySearchFunc(t.classes, set, func(n *class, set string) int { return strings.Compare(n.set, set) })
	if !ok {
		t.classes = slices.Insert(t.classes, i, &class{tenant: t, set: set})
	}
	return t.classes[i]
}

// of is a key's class of a set of pools. Nobody waits in one that the view does not have.
func (t *tenant) of(set string) *class {
	for _, n := range t.classes {
		if n.set == set {
			return n
		}
	}
	return &class{tenant: t, set: set}
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
func (v *view) leaf(key engine.Key) *tenant {
	if t := v.tenant(string(key)); !t.Above {
		return t
	}
	return v.tenant(string(key) + engine.KeySeparator)
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
	case v.Observed != nil:
		return engine.MaxLimit
	case t.Cap > 0:
		return t.Cap
	case !own && v.Caps[depth] > 0:
		return v.Caps[depth]
	}
	return engine.MaxLimit
}

// target is the key by which callers know a leaf, and what its first ticket takes.
func (n *class) target() protocol.Target { return n.queue[0].Target }

// blocks reports whether a key has to get something back before it may have a weight. It does not block a weight
// beyond the cap: that ticket is dropped.
func (t *tenant) blocks(weight int) bool { return weight <= t.most && weight > t.most-t.held }

// shares is the key's share: its own, or the default.
func (t *tenant) shares() int { return cmp.Or(t.Share, engine.DefaultShare) }

// level is how many whole shares a key holds if it holds a weight.
func (t *tenant) level(held int) int { return held * engine.DefaultShare / t.shares() }

// cost is how much virtual time a weight takes of a key: 1000 for each share of it, 1 at
// the least.
func (t *tenant) cost(weight int) int64 { return max(1, int64(weight)*1000/int64(t.shares())) }

// name is that of a class among all.
func (n *class) name() string { return protocol.ClassText(n.set, n.Name) }

// tag is the virtual time after a weight that the class is served next.
func (n *class) tag(weight int) int64 { return n.base + n.cost(weight) }

// counts is what a key holds with some pools: with that one with which it holds the most. Without any it is all.
func (t *tenant) counts(pools []string) (weight int) {
	for _, pool := range pools {
		weight = max(weight, t.with[pool])
	}
	if len(pools) == 0 {
		return t.held
	}
	return weight
}

// pools are the names of the pools that a class wants.
func (n *class) pools() []string {
	return slices.DeleteFunc(strings.Split(n.set, ","), func(pool string) bool { return pool == "" })
}

// round is a ledger's search for the next ticket to serve. A ticket that is blocked keeps free all that its
// caller wants.
type round struct {
	v       *view
	blocked map[*class]bool
	kept    map[*tenant]int // weight
	taken   map[string]int  // of pools: used, or kept free
	awaited map[string]bool // the pools that a ticket ahead waits for
}

// newRound is a round over the classes. Blocked are those that the ledger says, or anew: those whose weight is not there.
func (v *view) newRound(anew bool) *round {
	p := &round{v: v, blocked: map[*class]bool{}, kept: map[*tenant]int{}, taken: maps.Clone(v.taken), awaited: map[string]bool{}}
	for _, t := range v.tenants {
		for _, n := range t.classes {
			p.blocked[n] = n.full && !anew
		}
	}
	for _, t := range v.tenants {
		if anew && len(t.below) == 0 {
			p.look(t)
		}
	}
	return p
}

// look finds which classes of a key are blocked, and then those above it.
func (p *round) look(t *tenant) {
	for ; t.up != nil; t = t.up {
		for _, n := range t.classes {
			p.blocked[n] = false
		}
		first := p.first(t, func(string) bool { return true })
		all := first != nil && isBlocker(t, first)
		for _, n := range t.classes {
			leaf := p.next(n)
			p.blocked[n] = leaf != nil && (all || isBlocker(t, leaf) || p.kept[t] > 0 && p.blocker(leaf) == t)
		}
	}
}

// next is the leaf of the ticket that is served first in a class; nil if all are blocked.
func (p *round) next(n *class) (leaf *class) {
	if len(n.queue) > 0 {
		return n
	}
	var first *class
	for _, k := range n.below {
		for _, other := range k.classes {
			if other.set != n.set || p.blocked[other] {
				continue
			}
			if l := p.next(other); l != nil && (first == nil || p.before(other, l, first, leaf, other.pools())) {
				first, leaf = other, l
			}
		}
	}
	return leaf
}

// before reports whether a class goes before another, each with the leaf of its first ticket. What their keys hold
// with some pools counts.
func (p *round) before(a, of, b, than *class, pools []string) bool {
	return cmp.Or(cmp.Compare(a.level(a.counts(pools)), b.level(b.counts(pools))), cmp.Compare(a.tag(of.queue[0].ID.Weight), b.tag(than.queue[0].ID.Weight)), cmp.Compare(a.seq, b.seq)) < 0
}

// first is the leaf of the ticket of a key that is served first, of some sets; nil if there is none.
func (p *round) first(t *tenant, open func(set string) bool) (leaf *class) {
	both := func(a, b *class) []string {
		return slices.DeleteFunc(a.pools(), func(pool string) bool { return !slices.Contains(b.pools(), pool) })
	}
	below := func(l *class) *class { // that leads to a leaf
		n := l.tenant
		for n != t && n.up != t {
			n = n.up
		}
		return n.of(l.set)
	}
	for _, n := range t.classes {
		l := p.next(n)
		switch {
		case l == nil || !open(n.set):
		case leaf == nil:
			leaf = l
		case l.tenant == t:
			if a, b := l.queue[0], leaf.queue[0]; cmp.Or(cmp.Compare(a.Place, b.Place), strings.Compare(a.ID.String(), b.ID.String())) < 0 {
				leaf = l
			}
		case p.before(below(l), l, below(leaf), leaf, both(l, leaf)):
			leaf = l
		}
	}
	return leaf
}

// isBlocker reports whether a key blocks a ticket, and none below it does. One below may, and the
// ledger has not looked yet.
func isBlocker(t *tenant, leaf *class) bool {
	weight := leaf.queue[0].ID.Weight
	for n := leaf.tenant; n != t; n = n.up {
		if weight > n.most-n.held {
			return false
		}
	}
	return t.blocks(weight)
}

// blocker is the lowest key of a ticket's path whose room, less the weight that is kept free, is too small; nil if
// there is none.
func (p *round) blocker(leaf *class) *tenant {
	weight := leaf.queue[0].ID.Weight
	for n := leaf.tenant; n.up != nil; n = n.up {
		if weight <= n.most && weight > n.most-n.held-p.kept[n] {
			return n
		}
	}
	return nil
}

// ready is the leaf of the ticket that could be served or is to be dropped; nil if there is none. silent picks tickets that
// are dropped though they lack something.
func (p *round) ready(silent func(engine.ID) bool) *class {
	for {
		leaf := p.first(p.v.root, func(set string) bool {
			return !slices.ContainsFunc(strings.Split(set, ","), func(pool string) bool { return p.awaited[pool] })
		})
		if leaf == nil {
			return nil
		}
		t := leaf.queue[0]
		takes := takesOf(t)
		if p.v.TooHeavy(t.Target, t.ID.Weight) {
			return leaf
		}
		if k := p.blocker(leaf); k != nil {
			if p.kept[k] == 0 {
				return leaf
			}
			p.look(k)
			continue
		}
		short := p.v.root.most-p.v.root.held-p.kept[p.v.root] < t.ID.Weight
		awaited, timeAlone := map[string]bool{}, true
		for pool, n := range takes {
			awaited[pool] = n > p.v.amountOf(pool)-p.taken[pool]
			timeAlone = timeAlone && (!awaited[pool] || p.v.rate(pool))
		}
		if silent(t.ID) || !short && !slices.Contains(slices.Collect(maps.Values(awaited)), true) {
			return leaf
		}
		if short {
			return nil
		}
		for pool, n := range takes {
			if !timeAlone || p.v.rate(pool) {
				p.awaited[pool] = p.awaited[pool] || awaited[pool]
				p.taken[pool] += n
			}
		}
		for n := leaf.tenant; n != nil && (!timeAlone || n.up != nil); n = n.up {
			p.kept[n] += t.ID.Weight
		}
	}
}

// none is for ready: it picks no ticket.
func none(engine.ID) bool { return false }

// runnable is the leaf of the ticket that a class is served first; nil if the class is not runnable:
// nobody waits, or it is full, or all below it are.
func (v *view) runnable(n *class) *class {
	if n.full {
		return nil
	}
	if v.standing == nil {
		v.standing = v.newRound(false)
	}
	return v.standing.next(n)
}

// Ready is a ticket that nothing blocks; ok is false if there is none.
func (v *view) Ready() (id engine.ID, ok bool) {
	leaf := v.newRound(false).ready(none)
	if leaf == nil {
		return engine.ID{}, false
	}
	return leaf.queue[0].ID, true
}

// EachRunnable calls f for each runnable leaf, with its first ticket. A key above it may be full.
func (v *view) EachRunnable(f func(leaf *class, first engine.ID)) {
	for _, t := range v.tenants {
		for _, n := range t.classes {
			if len(n.queue) > 0 && !n.full {
				f(n, n.queue[0].ID)
			}
		}
	}
}

// Room reports whether no leaf is runnable.
func (v *view) Room() bool {
	room := true
	v.EachRunnable(func(*class, engine.ID) { room = false })
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
func (v *view) PathLoad(key engine.Key) (room, most int) {
	room, most = engine.MaxLimit, v.Limit
	for _, name := range path(key) {
		h, m := v.KeyLoad(name)
		room, most = min(room, m-h), min(most, m)
	}
	return room, most
}

// TooHeavy reports whether a weight, or what goes with it of pools, is more than there may ever be.
func (v *view) TooHeavy(t protocol.Target, weight int) bool {
	_, most := v.PathLoad(t.Key)
	for pool, n := range t.Takes.All() {
		if n > v.amountOf(pool) {
			return true
		}
	}
	return weight > most
}

// path are the names of a key and of those above it, from the outermost.
func path(key engine.Key) (names []string) {
	if key == "" {
		return []string{""}
	}
	for i := range key.Names() {
		names = append(names, string(key.First(i+1)))
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

// TargetOf is the target of a permit or ticket; zero if there is none.
func (v *view) TargetOf(id engine.ID) (t protocol.Target) {
	if r := v.entry(id); r != nil {
		return r.Target
	}
	return t
}

// setOf is which pools a permit or ticket takes some of.
func (v *view) setOf(id engine.ID) string {
	return v.TargetOf(id).Takes.Names()
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

// Callers is how many callers of a client wait: its tickets, and those behind them. A late copy of an ask may have made one that is silent.
func (v *view) Callers(now int64, client string) (n int) {
	for i := range v.Waiters {
		if t := &v.Waiters[i]; t.ID.Client == client && endOf(t) > now {
			n += 1 + t.Behind
		}
	}
	return n
}

// NextEnd is when the first lease ends, or a cooldown, or enough of a rate has come back for a ticket; ok is false without any.
func (v *view) NextEnd() (end int64, ok bool) {
	if end, ok = v.Cooldown, v.Cooldown > 0; v.Due > 0 && (!ok || v.Due < end) {
		end, ok = v.Due, true
	}
	for i := range v.Holders {
		if h := &v.Holders[i]; !ok || h.End < end {
			end, ok = h.End, true
		}
	}
	return end, ok
}
