package ledger

import (
	"cmp"
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
// Only leaves have a queue, and its order is that of places. The callers of a key that has
// others below it are a leaf of their own there, with the default share and no cap of all keys.
// A semaphore without keys is the root with that leaf alone.

const (
	// unit is what a permit of weight 1 costs a key with one share of 1.
	unit = 1000

	// maxSwept is how many keys that stand aside a step looks at because the caps of
	// all keys have changed. The next step goes on.
	maxSwept = 128
)

// key is what a key holds and waits for, with all below it.
type key struct {
	name  string // see engine.Key; the leaf of a key's own callers has its name, with a separator behind it
	up    *key   // nil: it is the root
	own   *key   // the leaf of its own callers; nil: it is a leaf
	depth int    // how many names it has; 0: no cap of all keys is its
	below int    // how many keys with a name of their own are remembered below it

	held, waiting int       // weight and tickets
	queue         []*ticket // of a leaf, by place
	turn          []*key    // those in turn below it, by level, tag and seq
	time          int64     // among those below it, virtual: the largest tag that was served

	ruled      bool // it has an operator's rule
	cap, share int  // by that rule; 0: as for all

	where     standing
	level     int   // whole shares held
	tag       int64 // the virtual time at which its first ticket will have been served
	base, seq int64 // since when it waits, in virtual time, and as which; seq 0: it does not
	epoch     int   // of the caps of all keys when it was found full
}

// standing is where a key is.
type standing uint8

const (
	nowhere standing = iota // nobody waits, or all below it are full
	inTurn                  // its first ticket waits for weight of those above
	full                    // its first ticket waits for weight of the key's own
)

// keyed is what a ledger knows of its keys.
type keyed struct {
	on    bool            // since a key, or a cap of keys, was first named
	caps  engine.Caps     // how much a key without a rule may hold, by depth; 0: there is no such cap
	root  key             // its cap is the limit
	all   map[string]*key // those with a name that hold, wait, have a rule, or such ones below
	aside []*key          // the full ones, by epoch and name
	ready int             // how many leaves are in turn

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
	l.stepOut(k)
	k.own = &key{name: k.name + engine.KeySeparator, up: k, held: k.held, waiting: k.waiting, queue: k.queue}
	k.queue = nil
	if k.waiting > 0 {
		l.reposition(k.own)
	}
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
func (k *key) path() string { return strings.TrimSuffix(k.name, engine.KeySeparator) }

// first is the ticket of a key that is served first; nil: none below it is in turn.
func (k *key) first() *ticket {
	for len(k.turn) > 0 {
		k = k.turn[0]
	}
	if len(k.queue) > 0 {
		return k.queue[0]
	}
	return nil
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

// lacks reports whether a key must give back something before it may have a weight.
// One that it could never have is not held up by that.
func (l *Ledger) lacks(k *key, weight int) bool {
	most := l.capOf(k)
	return weight <= most && weight > most-k.held
}

// holdsUp reports whether a key, and none below it, holds up its first ticket. One below it may do so
// without having been looked at: its cap is smaller than it was.
func (l *Ledger) holdsUp(k *key, first *ticket) bool {
	for n := first.key.leaf(); n != k; n = n.up {
		if first.id.Weight > l.capOf(n)-n.held {
			return false
		}
	}
	return l.lacks(k, first.id.Weight)
}

// lacking is the lowest key of a ticket's path that lacks its weight; nil: none does.
func (l *Ledger) lacking(t *ticket) *key {
	for n := t.key.leaf(); n.up != nil; n = n.up {
		if l.lacks(n, t.id.Weight) {
			return n
		}
	}
	return nil
}

// hold changes the weight held of a leaf, and of each key above it.
func (k *key) hold(weight int) {
	for n := k.leaf(); n.up != nil; n = n.up {
		n.held += weight
	}
}

// wait changes the number of tickets of a leaf, and of those above it.
func (k *key) wait(n int) {
	for ; k != nil; k = k.up {
		k.waiting += n
	}
}

// reposition puts a key where it belongs, and then those above it. It is called whenever
// its first ticket, its weight or its rule has changed.
func (l *Ledger) reposition(k *key) {
	for ; k.up != nil; k = k.up {
		l.stepOut(k)
		l.stepIn(k)
	}
}

// served notes that the first ticket of a leaf was served, and puts it, and those above it,
// behind those that were not.
func (l *Ledger) served(k *key) {
	for n := k.leaf(); n.up != nil; n = n.up {
		l.stepOut(n)
		n.up.time = max(n.up.time, n.tag)
		if n.waiting > 0 {
			l.goLast(n)
		}
	}
	l.reposition(k.leaf())
}

// goLast gives a key a place among those of its level: the last one.
func (l *Ledger) goLast(k *key) {
	l.keys.seq++
	k.base, k.seq = k.up.time, l.keys.seq
}

// forgetUnused forgets a key that nobody uses, and those above it.
func (l *Ledger) forgetUnused(k *key) {
	for ; k.depth > 0 && k.idle() && l.keys.all[k.name] == k; k = k.up {
		delete(l.keys.all, k.name)
		k.up.below--
	}
}

// idle reports whether a key has nothing that has to be known.
func (k *key) idle() bool { return k.waiting == 0 && k.held == 0 && !k.ruled && k.below == 0 }

// nameKeys makes the semaphore tell keys apart from now on. Until then all is of the key "".
func (l *Ledger) nameKeys() { l.keys.on = true }

// stepIn puts a key where it belongs. An unused one is forgotten.
func (l *Ledger) stepIn(k *key) {
	ks := &l.keys
	if k.waiting == 0 {
		k.seq = 0
		if k.idle() {
			l.forgetUnused(k)
		}
		return
	}
	if k.seq == 0 {
		l.goLast(k)
	}
	switch t := k.first(); {
	case t == nil: // those below it are full
	case l.holdsUp(k, t):
		ks.stepAside(k, ks.epoch)
	default:
		ks.stepInTurn(k, t)
	}
}

func (ks *keyed) stepInTurn(k *key, first *ticket) {
	k.where, k.level, k.tag = inTurn, k.held*engine.DefaultShare/k.shares(), k.base+k.cost(first.id.Weight)
	k.up.turn = slices.Insert(k.up.turn, k.turns(), k)
	ks.ready += bit(k.own == nil)
}

func (ks *keyed) stepAside(k *key, epoch int) {
	k.where, k.epoch = full, epoch
	ks.aside = slices.Insert(ks.aside, ks.besides(k), k)
}

// stepOut takes a key out of where it stands.
func (l *Ledger) stepOut(k *key) {
	ks := &l.keys
	switch k.where {
	case inTurn:
		i := k.turns()
		k.up.turn = slices.Delete(k.up.turn, i, i+1)
		ks.ready -= bit(k.own == nil)
	case full:
		i := ks.besides(k)
		ks.aside = slices.Delete(ks.aside, i, i+1)
	}
	k.where, k.epoch = nowhere, 0
}

// turns is where a key is, or belongs, among those in turn beside it.
func (k *key) turns() int {
	return sort.Search(len(k.up.turn), func(i int) bool {
		o := k.up.turn[i]
		return cmp.Or(cmp.Compare(o.level, k.level), cmp.Compare(o.tag, k.tag), cmp.Compare(o.seq, k.seq)) >= 0
	})
}

// besides is where a key is, or belongs, among those aside.
func (ks *keyed) besides(k *key) int {
	return sort.Search(len(ks.aside), func(i int) bool {
		o := ks.aside[i]
		return cmp.Or(cmp.Compare(o.epoch, k.epoch), strings.Compare(o.name, k.name)) >= 0
	})
}

// sweep has keys that stand aside look at the caps of all keys again, which have
// changed, but for maxSwept of them in a step.
func (l *Ledger) sweep() {
	ks := &l.keys
	for len(ks.aside) > 0 && ks.aside[0].epoch != ks.epoch {
		k := ks.aside[0]
		if l.swept == maxSwept {
			l.goOn(k.first())
			return
		}
		l.swept++
		l.reposition(k)
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

// keyOf is the key of the permit that a request is about: the one of its first ask.
func (l *Ledger) keyOf(r *protocol.Request) *key {
	if t := l.tickets[r.ID]; t != nil {
		return t.key
	}
	if !l.keys.on {
		return l.key("")
	}
	k := l.inUse(r.Key)
	if k.waiting == 0 && k.held == 0 && k.depth > 0 {
		k.own = nil // nobody is below it any more
	}
	return k
}

// leaves are the leaves with tickets: those in turn, and then those aside or below a key aside.
func (ks *keyed) leaves() (list []*key) {
	var add func(k *key)
	add = func(k *key) {
		for _, c := range k.turn {
			add(c)
		}
		if len(k.queue) > 0 {
			list = append(list, k)
		}
	}
	add(&ks.root)
	for _, k := range ks.aside {
		add(k)
	}
	return list
}

// inOrder are the tickets of the leaves, leaf by leaf.
func (l *Ledger) inOrder() []*ticket {
	var list []*ticket
	for _, k := range l.keys.leaves() {
		list = append(list, k.queue...)
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
	for _, k := range leaves {
		list = append(list, k.queue...)
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
		if k.depth > 0 && (k.waiting > 0 || k.held > 0) {
			above[k.up] = true
		}
	}
	show := func(k *key, before int) {
		if k.name != "" && k.depth == 0 && !above[k.up] {
			return
		}
		most := l.capOf(k)
		if most == engine.MaxLimit {
			most = 0
		}
		list = append(list, engine.KeyState{Key: engine.Key(k.name), Held: k.held, Waiting: waiting[k], Cap: most, Share: k.shares(), Ruled: k.ruled, Full: k.where == full, InTurn: k.where == inTurn, Before: before})
	}
	var walk func(k *key)
	walk = func(k *key) {
		for i, c := range k.turn {
			show(c, i)
			walk(c)
		}
	}
	walk(&ks.root)
	for _, k := range ks.aside {
		show(k, 0)
		walk(k)
	}
	for _, k := range ks.sorted() {
		if k.where == nowhere && (k.waiting > 0 || k.held > 0 || k.ruled) {
			show(k, 0)
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
