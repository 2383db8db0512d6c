package ledger

import (
	"cmp"
	"maps"
	"slices"
	"sort"
	"strings"

	"sema/engine"
	"sema/internal/protocol"
)

// The keys of a semaphore are a tree: "acme", and below it "acme", "alice". A permit counts
// at each key of its path. The root is the semaphore itself, whose cap is the limit.
//
// Among the keys below one, the next permit goes to the one that holds the fewest whole
// shares; among such keys in the order of self-clocked fair queueing (Golestani, "A
// Self-Clocked Fair Queueing Scheme for Broadband Applications", 1994), and among equals to
// the one that stood there first. A key that is at its cap stands aside with all below it,
// and holds up nobody. While a key stands at a level, each other one beside it is served at
// that level no more often than its weight and share allow, once if they are equal.
//
// Only leaves have queues, and their order is that of places. The callers of a key that has
// others below it are a leaf of their own there, with the default share and no cap of all keys.
// A semaphore without keys is the root with that leaf alone.
//
// The tickets that want some of the same pools are a set. Each set has a lane at each key that it
// waits at, so that a set whose pool lacks room is passed over with one look. See pools.go.

const (
	// unit is what a permit of weight 1 costs a key with one share of 1.
	unit = 1000

	// maxSwept is how many keys that stand aside a step looks at because the caps of
	// all keys have changed. The next step goes on.
	maxSwept = 128
)

// key is what a key holds, with all below it.
type key struct {
	name  string // see engine.Key; the leaf of a key's own callers has its name, with a separator behind it
	up    *key   // nil: it is the root
	own   *key   // the leaf of its own callers; nil: it is a leaf
	depth int    // how many names it has; 0: no cap of all keys is its
	below int    // how many keys with a name of their own are remembered below it

	held     int            // weight
	with     map[string]int // the weight of the permits that have some of a pool, by pool
	reserved int            // weight that this step keeps free, see pass
	lanes    []*lane        // of the sets that wait, in their order
	time     int64          // among those below it, virtual: the largest tag that was served

	ruled      bool // it has an operator's rule
	cap, share int  // by that rule; 0: as for all
}

// lane is what waits of one set at a key, with all below it.
type lane struct {
	key     *key
	set     string    // the names of the pools that its tickets want, see engine.Pools.Names; mostly ""
	waiting int       // tickets
	queue   []*ticket // of a leaf, by place
	turn    []*lane   // those in turn below it, by level, tag and seq

	where     standing
	level     int   // whole shares held
	tag       int64 // the virtual time at which its first ticket will have been served
	base, seq int64 // since when it waits, in virtual time, and as which; seq 0: it does not
	epoch     int   // of the caps of all keys when it was put aside
}

// standing is where a lane is.
type standing uint8

const (
	nowhere standing = iota // nobody waits, or all below it are aside
	inTurn                  // its first ticket waits for weight of those above, or for a pool
	full                    // aside: its first ticket, or the first of all lanes of the key, waits for weight of the key's own
)

// keyed is what a ledger knows of its keys.
type keyed struct {
	on    bool            // since a key, or a cap of keys, was first named
	caps  engine.Caps     // how much a key without a rule may hold, by depth; 0: there is no such cap
	root  key             // its cap is the limit
	all   map[string]*key // those with a name that hold, wait, have a rule, or such ones below
	aside []*lane         // the full ones, by epoch and name
	ready int             // how many leaves are in turn
	pools map[string]*pool
	there engine.Pools // how much there is of each

	seq   int64 // the last one given
	epoch int   // grows whenever caps change
	rules int   // how many keys have one
}

// key finds a key, or makes it, with those above it.
func (l *Ledger) key(name string) *key {
	ks := &l.keys
	if name == "" {
		if ks.root.own == nil {
			ks.root.own = &key{up: &ks.root}
		}
		return ks.root.own
	}
	if k := ks.all[name]; k != nil {
		return k
	}
	up := &ks.root
	if i := strings.LastIndex(name, engine.KeySeparator); i >= 0 {
		up = l.key(name[:i])
		if i == len(name)-1 { // its own callers
			l.branch(up)
			return up.own
		}
	}
	k := &key{name: name, up: up, depth: up.depth + 1}
	if ks.all == nil {
		ks.all = map[string]*key{}
	}
	ks.all[name] = k
	up.below++
	return k
}

// branch makes a key that was a leaf one with others below it. What it holds and waits for
// is that of its own callers from now on.
func (l *Ledger) branch(k *key) {
	if k.own != nil {
		return
	}
	own := &key{name: k.name + engine.KeySeparator, up: k, held: k.held, with: maps.Clone(k.with)}
	for _, n := range k.lanes {
		l.stepOut(n)
		own.lanes = append(own.lanes, &lane{key: own, set: n.set, waiting: n.waiting, queue: n.queue})
		n.queue = nil
	}
	k.own = own
	if k.waits() {
		l.reposition(k.own)
	}
}

// lane finds a key's lane of a set; nil: nobody of it waits there.
func (k *key) lane(set string) *lane {
	for _, n := range k.lanes {
		if n.set == set {
			return n
		}
	}
	return nil
}

// waits reports whether a key has tickets.
func (k *key) waits() bool { return slices.ContainsFunc(k.lanes, (*lane).waits) }

func (n *lane) waits() bool { return n.waiting > 0 }

// name orders lanes by set and key.
func (n *lane) name() string {
	if n.set == "" {
		return n.key.name
	}
	return n.set + "\x02" + n.key.name
}

// inUse finds or makes a key that somebody holds or waits for, so that those above it have others
// below them.
func (l *Ledger) inUse(name string) *key {
	k := l.key(name)
	for n := k.up; n.up != nil; n = n.up {
		l.branch(n)
	}
	return k
}

// leaf is where the callers of a key queue.
func (k *key) leaf() *key {
	if k.own != nil {
		return k.own
	}
	return k
}

// path is the name by which callers of a leaf know it.
func (n *lane) path() string { return strings.TrimSuffix(n.name(), engine.KeySeparator) }

// first is the ticket of a lane that is served first; nil: none below it is in turn.
func (n *lane) first() *ticket {
	for len(n.turn) > 0 {
		n = n.turn[0]
	}
	if len(n.queue) > 0 {
		return n.queue[0]
	}
	return nil
}

// first is the ticket of a key that is served first, of the lanes that skip does not pick; nil: none is in turn.
func (k *key) first(skip func(*lane) bool) (first *ticket) {
	var of *lane
	for _, n := range k.lanes {
		t := n.first()
		if t == nil || skip != nil && skip(n) {
			continue
		}
		if len(n.turn) > 0 {
			n = n.turn[0]
		}
		if first == nil || n.key == k && byPlace(t, first) < 0 || n.key != k && n.beforeOther(of) < 0 {
			first, of = t, n
		}
	}
	return first
}

// beforeOther is the order of lanes in turn of different sets. Only the pools that both want count for what their keys
// hold. If all counted, a key that holds much without those pools would wait for as long as another one comes back for
// some of them.
func (n *lane) beforeOther(o *lane) int {
	others := o.pools()
	both := slices.DeleteFunc(n.pools(), func(pool string) bool { return !slices.Contains(others, pool) })
	return cmp.Or(cmp.Compare(n.key.levelWith(both), o.key.levelWith(both)), cmp.Compare(n.tag, o.tag), cmp.Compare(n.seq, o.seq))
}

// levelWith is how many whole shares a key holds with that one of some pools with which it holds the most; of all
// without any.
func (k *key) levelWith(pools []string) int {
	held := 0
	for _, pool := range pools {
		held = max(held, k.with[pool])
	}
	if len(pools) == 0 {
		held = k.held
	}
	return held * engine.DefaultShare / k.shares()
}

// capOf is how much weight a key may hold.
func (l *Ledger) capOf(k *key) int {
	switch {
	case k.cap > 0:
		return k.cap // an operator's
	case k.depth > 0 && l.keys.caps[k.depth-1] > 0:
		return l.keys.caps[k.depth-1]
	}
	return engine.MaxLimit
}

// mostOf is the largest weight that a key may ever have: the least of the limit and the caps
// of its path. depth is how many names the key has whose cap that is; 0: it is the limit.
func (l *Ledger) mostOf(k *key) (most, depth int) {
	most = l.limit
	for n := k.leaf(); n.up != nil; n = n.up {
		if c := l.capOf(n); c < most {
			most, depth = c, n.depth
		}
	}
	return most, depth
}

func (k *key) shares() int { return cmp.Or(k.share, engine.DefaultShare) }

// cost is how much virtual time a weight takes of a key.
func (k *key) cost(weight int) int64 {
	return max(1, int64(weight)*unit/int64(k.shares()))
}

// room is how much more weight a key may hold.
func (l *Ledger) room(k *key) int { return l.capOf(k) - k.held }

// lacks reports whether a key must give back something before it may have a weight and still keep
// some free. One that it could never have is not held up by that.
func (l *Ledger) lacks(k *key, weight, kept int) bool {
	return weight <= l.capOf(k) && weight > l.room(k)-kept
}

// holdsUp reports whether a key, and none below it, holds up its first ticket. One below it may do so
// without having been looked at: its cap is smaller than it was.
func (l *Ledger) holdsUp(k *key, first *ticket) bool {
	for n := first.key.leaf(); n != k; n = n.up {
		if first.id.Weight > l.room(n) {
			return false
		}
	}
	return l.lacks(k, first.id.Weight, 0)
}

// lacking is the lowest key of a ticket's path that lacks its weight; nil: none does.
func (l *Ledger) lacking(t *ticket) *key {
	for n := t.key.leaf(); n.up != nil; n = n.up {
		if l.lacks(n, t.id.Weight, n.reserved) {
			return n
		}
	}
	return nil
}

// hold changes the weight held of a leaf, and of each key above it, by that of a permit; and what is used of pools.
func (l *Ledger) hold(k *key, weight int, takes engine.Pools, sign int) {
	for n := k.leaf(); n.up != nil; n = n.up {
		n.held += sign * weight
		for pool := range takes.All() {
			if n.with == nil {
				n.with = map[string]int{}
			}
			n.with[pool] += sign * weight
		}
	}
	l.usePools(takes, sign)
}

// wait changes the number of tickets of a lane, and of those above it.
func (l *Ledger) wait(k *key, set string, n int) {
	for ; k != nil; k = k.up {
		at := k.lane(set)
		if at == nil {
			at = &lane{key: k, set: set}
			k.lanes = slices.Insert(k.lanes, sort.Search(len(k.lanes), func(i int) bool { return k.lanes[i].set >= set }), at)
		}
		at.waiting += n
	}
}

// reposition puts the lanes of a key where they belong, and then those above it. It is called whenever
// a first ticket, its weight or its rule has changed.
func (l *Ledger) reposition(k *key) {
	for ; k.up != nil; k = k.up {
		for _, n := range k.lanes {
			l.stepOut(n)
		}
		l.stepIn(k)
	}
	k.forgetLanes()
}

// forgetLanes forgets the lanes of sets of which nobody waits any more.
func (k *key) forgetLanes() {
	if len(k.lanes) > 1 || len(k.lanes) == 1 && k.lanes[0].set != "" {
		k.lanes = slices.DeleteFunc(k.lanes, func(n *lane) bool { return n.waiting == 0 && len(n.turn) == 0 })
	}
}

// served notes that a ticket was served, which was first of its lanes, and puts them
// behind those that were not.
func (l *Ledger) served(t *ticket) {
	for k := t.key.leaf(); k.up != nil; k = k.up {
		n := k.lane(t.set)
		l.stepOut(n)
		k.up.time = max(k.up.time, n.base+k.cost(t.id.Weight)) // its tag may be that of a ticket for which weight was kept free
		if n.waiting > 0 {
			l.goLast(n)
		}
	}
	l.reposition(t.key.leaf())
}

// goLast gives a lane a place among those of its level: the last one.
func (l *Ledger) goLast(n *lane) {
	l.keys.seq++
	n.base, n.seq = n.key.up.time, l.keys.seq
}

// forgetUnused forgets a key that nobody uses, and those above it.
func (l *Ledger) forgetUnused(k *key) {
	for ; k.depth > 0 && k.idle() && l.keys.all[k.name] == k; k = k.up {
		delete(l.keys.all, k.name)
		k.up.below--
	}
}

// idle reports whether a key has nothing that has to be known.
func (k *key) idle() bool { return k.held == 0 && !k.ruled && k.below == 0 && !k.waits() }

// nameKeys makes the semaphore tell keys apart from now on. Until then all is of the key "".
func (l *Ledger) nameKeys() { l.keys.on = true }

// stepIn puts the lanes of a key where they belong. An unused key is forgotten.
func (l *Ledger) stepIn(k *key) {
	ks := &l.keys
	all := len(k.lanes) > 1 && l.heldUp(k)
	for _, n := range k.lanes {
		if n.waiting == 0 {
			n.seq = 0
			continue
		}
		if n.seq == 0 {
			l.goLast(n)
		}
		switch t := n.first(); {
		case t == nil: // those below it are aside
		case all || l.holdsUp(k, t) || k.reserved > 0 && l.lacks(k, t.id.Weight, k.reserved) && l.lacking(t) == k:
			ks.stepAside(n, ks.epoch)
		default:
			ks.stepInTurn(n, t)
		}
	}
	k.forgetLanes()
	if k.idle() {
		l.forgetUnused(k)
	}
}

// heldUp reports whether a key holds up the first ticket of all its lanes, and so all of them: what is
// given back there is for that one.
func (l *Ledger) heldUp(k *key) bool {
	t := k.first(nil)
	return t != nil && l.holdsUp(k, t)
}

// pools are the names of the pools that a lane's tickets want.
func (n *lane) pools() []string {
	if n.set == "" {
		return nil
	}
	return strings.Split(n.set, ",")
}

func (ks *keyed) stepInTurn(n *lane, first *ticket) {
	n.where, n.level, n.tag = inTurn, n.key.levelWith(n.pools()), n.base+n.key.cost(first.id.Weight)
	up := n.key.up.lane(n.set)
	up.turn = slices.Insert(up.turn, up.turns(n), n)
	ks.ready += bit(n.key.own == nil)
}

func (ks *keyed) stepAside(n *lane, epoch int) {
	n.where, n.epoch = full, epoch
	ks.aside = slices.Insert(ks.aside, ks.besides(n), n)
}

// stepOut takes a lane out of where it stands.
func (l *Ledger) stepOut(n *lane) {
	ks := &l.keys
	switch n.where {
	case inTurn:
		up := n.key.up.lane(n.set)
		i := up.turns(n)
		up.turn = slices.Delete(up.turn, i, i+1)
		ks.ready -= bit(n.key.own == nil)
	case full:
		i := ks.besides(n)
		ks.aside = slices.Delete(ks.aside, i, i+1)
	}
	n.where, n.epoch = nowhere, 0
}

// before is the order of lanes in turn.
func (n *lane) before(o *lane) int {
	return cmp.Or(cmp.Compare(n.level, o.level), cmp.Compare(n.tag, o.tag), cmp.Compare(n.seq, o.seq))
}

// turns is where a lane is, or belongs, among those in turn below this one.
func (n *lane) turns(of *lane) int {
	return sort.Search(len(n.turn), func(i int) bool { return n.turn[i].before(of) >= 0 })
}

// besides is where a lane is, or belongs, among those aside.
func (ks *keyed) besides(n *lane) int {
	return sort.Search(len(ks.aside), func(i int) bool {
		o := ks.aside[i]
		return cmp.Or(cmp.Compare(o.epoch, n.epoch), strings.Compare(o.name(), n.name())) >= 0
	})
}

// sweep has keys that stand aside look at the caps of all keys again, which have
// changed, but for maxSwept of them in a step.
func (l *Ledger) sweep() {
	ks := &l.keys
	for len(ks.aside) > 0 && ks.aside[0].epoch != ks.epoch {
		n := ks.aside[0]
		if l.swept == maxSwept {
			l.goOn(n.first())
			return
		}
		l.swept++
		l.reposition(n.key)
	}
}

// setCaps changes how much a key without a rule may hold.
func (l *Ledger) setCaps(caps engine.Caps) {
	if l.keys.caps != caps {
		l.nameKeys()
		l.keys.caps, l.limited = caps, true
		l.keys.epoch++
	}
}

// setKey gives a key a rule of its own, or takes it back.
func (l *Ledger) setKey(now int64, r *protocol.Request) protocol.Answer {
	if l.limit == 0 {
		return protocol.Answer{Status: protocol.Gone}
	}
	l.nameKeys()
	k := l.key(r.Key)
	had := bit(k.ruled)
	if r.Kind == protocol.SetKey {
		k.ruled, k.cap, k.share = true, cmp.Or(r.Cap, k.cap), cmp.Or(r.Share, k.share)
	} else {
		k.ruled, k.cap, k.share = false, 0, 0
	}
	l.keys.rules += bit(k.ruled) - had
	l.reposition(k)
	l.remember(now, 0)
	l.limited = true // nobody passes on what another key may get now
	return protocol.Answer{Status: protocol.Done}
}

// keyOf is the key of the permit that a request is about, and what it takes of pools: those of its first ask.
func (l *Ledger) keyOf(r *protocol.Request) (*key, engine.Pools) {
	if t := l.tickets[r.ID]; t != nil {
		return t.key, t.takes
	}
	name, takes := protocol.SplitCounted(r.Key)
	if !l.keys.on {
		return l.key(""), takes
	}
	k := l.inUse(name)
	if k.held == 0 && k.depth > 0 && !k.waits() {
		k.own = nil // nobody is below it any more
	}
	return k, takes
}

// leaves are the lanes with tickets: those in turn, and then those aside or below a key aside.
func (ks *keyed) leaves() (list []*lane) {
	var add func(n *lane)
	add = func(n *lane) {
		for _, c := range n.turn {
			add(c)
		}
		if len(n.queue) > 0 {
			list = append(list, n)
		}
	}
	for _, n := range ks.root.lanes {
		add(n)
	}
	for _, n := range ks.aside {
		add(n)
	}
	return list
}

// inOrder are the tickets of the leaves, leaf by leaf.
func (l *Ledger) inOrder() []*ticket {
	var list []*ticket
	for _, n := range l.keys.leaves() {
		list = append(list, n.queue...)
	}
	return list
}

// byPlace are all tickets by their places, whatever their keys.
func (l *Ledger) byPlace() []*ticket {
	leaves := l.keys.leaves()
	if len(leaves) == 1 {
		return leaves[0].queue
	}
	var list []*ticket
	for _, n := range leaves {
		list = append(list, n.queue...)
	}
	slices.SortFunc(list, byPlace)
	return list
}

// anyTicket reports whether f picks any ticket.
func (l *Ledger) anyTicket(f func(*ticket) bool) bool {
	for _, t := range l.tickets {
		if f(t) {
			return true
		}
	}
	return false
}

// keyStates are the keys as State shows them: those in turn, each before those below it; those
// aside; and those that only hold, or have a rule.
func (l *Ledger) keyStates(now int64) (list []engine.KeyState) {
	ks := &l.keys
	if !ks.on {
		return nil
	}
	waiting := map[*key]int{}
	for _, t := range l.tickets {
		for n := t.key.leaf(); n.up != nil && !t.silent(now); n = n.up {
			waiting[n]++
		}
	}
	above := map[*key]bool{} // those with others below them, beside which their own callers are listed
	for _, k := range ks.sorted() {
		if k.depth > 0 && (k.held > 0 || k.waits()) {
			above[k.up] = true
		}
	}
	shown := map[*key]bool{}
	show := func(k *key, where standing, before int) {
		if shown[k] || k.name != "" && k.depth == 0 && !above[k.up] {
			return
		}
		shown[k] = true
		most := l.capOf(k)
		if most == engine.MaxLimit {
			most = 0
		}
		list = append(list, engine.KeyState{Key: engine.Key(k.name), Held: k.held, Waiting: waiting[k], Cap: most, Share: k.shares(), Ruled: k.ruled, Full: where == full, InTurn: where == inTurn, Before: before})
	}
	var walk func(n *lane)
	walk = func(n *lane) {
		for i, c := range n.turn {
			show(c.key, inTurn, i)
			walk(c)
		}
	}
	for _, n := range ks.root.lanes {
		walk(n)
	}
	for _, n := range ks.aside {
		show(n.key, full, 0)
		walk(n)
	}
	for _, k := range ks.sorted() {
		if k.held > 0 || k.ruled || k.waits() {
			show(k, nowhere, 0)
		}
	}
	return list
}

// sorted are all keys by name, those of the callers of others among them.
func (ks *keyed) sorted() (list []*key) {
	if ks.root.own != nil {
		list = append(list, ks.root.own)
	}
	for _, k := range ks.all {
		if list = append(list, k); k.own != nil {
			list = append(list, k.own)
		}
	}
	slices.SortFunc(list, func(a, b *key) int { return strings.Compare(a.name, b.name) })
	return list
}

func bit(b bool) int {
	if b {
		return 1
	}
	return 0
}
