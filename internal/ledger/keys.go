package ledger

import (
	"cmp"
	"iter"
	"maps"
	"slices"
	"strings"

	"sema/engine"
	"sema/internal/protocol"
)

// This file says what a key is. Then read blocked.go (what keeps a ticket from being served), order.go
// (who is next), reserve.go (what is kept free for a blocked one) and serve.go (what a step does).
//
// The keys of a semaphore are a tree: "acme", and below it "acme", "alice". A permit counts at each key of
// its path. The root is the semaphore itself, whose cap is the limit.
//
// Only leaves have queues. The callers of a key that has others below it are a leaf of their own there, with
// the default share and no cap of all keys. A semaphore without keys is the root with that leaf alone.

// key counts for one key, and for all keys below it.
type key struct {
	name  string // see engine.Key; the leaf of a key's own callers has its name, with a separator behind it
	up    *key   // nil: it is the root
	own   *key   // the leaf of its own callers; nil: it is a leaf
	depth int    // how many names it has; 0: no cap of all keys is its
	below int    // how many keys with a name of their own are remembered below it

	held     int            // weight
	heldWith map[string]int // the weight of the permits that have some of a pool, by pool
	reserved int            // weight that the round keeps free, see round
	classes  []*class       // who waits, by set
	time     int64          // virtual time among the keys below it: the largest finish that was served

	over       bool // it held more than its cap when either changed last, see Ledger.noteOver
	ruled      bool // it has an operator's rule
	cap, share int  // by that rule; 0: as for all
}

// tree is what a ledger knows of its keys.
type tree struct {
	on    bool            // since a key, or a cap of keys, was first named
	caps  engine.Caps     // how much a key without a rule may hold, by depth; 0: there is no such cap
	root  key             // its cap is the limit
	named map[string]*key // those with a name that hold, wait, have a rule, or such ones below
	rules int             // how many keys have one
	over  int             // how many keys are marked so
	epoch int             // grows whenever caps change

	blocked  []*class // by epoch and text
	runnable int      // how many classes of leaves are runnable
	seq      int64    // the last one given

	pools   map[string]*pool
	amounts engine.Pools // how much there is of each pool
	rated   bool         // some of them are rates
}

// demand is what a permit takes: weight at each key of its path, and amounts of pools.
type demand struct {
	key    *key
	weight int
	takes  engine.Pools
	set    string // the names of those pools; mostly ""
}

// target is what a demand was made of.
func (d *demand) target() protocol.Target {
	return protocol.Target{Key: engine.Key(d.key.name), Takes: d.takes}
}

// leaf is where the callers of a key queue.
func (k *key) leaf() *key {
	if k.own != nil {
		return k.own
	}
	return k
}

// path are the keys at which a permit of a key counts, from its leaf up, without the root.
func (k *key) path() iter.Seq[*key] {
	return func(yield func(*key) bool) {
		for k := k.leaf(); k.up != nil && yield(k); k = k.up {
		}
	}
}

// class finds a key's class of a set; nil: nobody of it waits there.
func (k *key) class(set string) *class {
	for _, c := range k.classes {
		if c.set == set {
			return c
		}
	}
	return nil
}

// waits reports whether a key has tickets.
func (k *key) waits() bool {
	return slices.ContainsFunc(k.classes, func(c *class) bool { return c.waiting > 0 })
}

// shares is the weight of a key among the keys beside it.
func (k *key) shares() int { return cmp.Or(k.share, engine.DefaultShare) }

// demandOf is what the permit of an ask takes: what its first ask said, as long as that has a ticket.
func (l *Ledger) demandOf(r *protocol.Request) demand {
	if t := l.tickets[r.ID]; t != nil {
		return t.demand
	}
	d := demand{weight: r.ID.Weight, takes: r.Takes, set: r.Takes.Names()}
	if !l.keys.on {
		d.key = l.key("")
		return d
	}
	d.key = l.inUse(string(r.Key))
	if k := d.key; k.held == 0 && k.depth > 0 && !k.waits() {
		k.own = nil // nobody is below it any more
	}
	return d
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
	if k := ks.named[name]; k != nil {
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
	if ks.named == nil {
		ks.named = map[string]*key{}
	}
	ks.named[name] = k
	up.below++
	return k
}

// inUse finds or makes a key that somebody holds or waits for, so that those above it have others
// below them.
func (l *Ledger) inUse(name string) *key {
	k := l.key(name)
	for up := k.up; up.up != nil; up = up.up {
		l.branch(up)
	}
	return k
}

// branch gives a leaf keys below it. What it holds and waits for counts for the leaf of its own callers from now on.
func (l *Ledger) branch(k *key) {
	if k.own != nil {
		return
	}
	own := &key{name: k.name + engine.KeySeparator, up: k, held: k.held, heldWith: maps.Clone(k.heldWith)}
	for _, c := range k.classes {
		l.unlist(c)
		own.classes = append(own.classes, &class{key: own, set: c.set, waiting: c.waiting, queue: c.queue})
		c.queue = nil
	}
	k.own = own
	if k.waits() {
		l.reschedule(k.own)
	}
}

// unused reports whether a key has nothing that has to be known.
func (k *key) unused() bool { return k.held == 0 && !k.ruled && k.below == 0 && !k.waits() }

// forgetUnused forgets a key that nobody uses, and those above it.
func (l *Ledger) forgetUnused(k *key) {
	for ; k.depth > 0 && k.unused() && l.keys.named[k.name] == k; k = k.up {
		delete(l.keys.named, k.name)
		k.up.below--
	}
}

// nameKeys makes the semaphore tell keys apart from now on. Until then all is of the key "".
func (l *Ledger) nameKeys() { l.keys.on = true }

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
	k := l.key(string(r.Key))
	had := bit(k.ruled)
	if r.Kind == protocol.SetKey {
		k.ruled, k.cap, k.share = true, cmp.Or(r.Cap, k.cap), cmp.Or(r.Share, k.share)
	} else {
		k.ruled, k.cap, k.share = false, 0, 0
	}
	l.keys.rules += bit(k.ruled) - had
	l.noteOver(k)
	l.reschedule(k)
	l.remember(now, 0)
	l.limited = true // nobody passes on what another key may get now
	return protocol.Answer{Status: protocol.Done}
}

// keyStates are the keys as State shows them: first the runnable ones, each before the keys below it; then the blocked
// ones; then the keys that only hold, or have a rule.
func (l *Ledger) keyStates(now int64) (list []engine.KeyState) {
	ks := &l.keys
	if !ks.on {
		return nil
	}
	waiting := map[*key]int{}
	for _, t := range l.tickets {
		if t.silent(now) {
			continue
		}
		for k := range t.key.path() {
			waiting[k]++
		}
	}
	above := map[*key]bool{} // those with others below them, beside which their own callers are listed
	for _, k := range ks.sorted() {
		if k.depth > 0 && (k.held > 0 || k.waits()) {
			above[k.up] = true
		}
	}
	shown := map[*key]bool{}
	show := func(k *key, is state, before int) {
		if shown[k] || k.name != "" && k.depth == 0 && !above[k.up] {
			return
		}
		shown[k] = true
		most := l.capSet(k)
		if most == engine.MaxLimit {
			most = 0
		}
		list = append(list, engine.KeyState{Key: engine.Key(k.name), Held: k.held, Waiting: waiting[k], Cap: most, Share: k.shares(), Ruled: k.ruled, Full: is == blocked, InTurn: is == runnable, Before: before})
	}
	var walk func(c *class)
	walk = func(c *class) {
		for i, below := range c.runnable {
			show(below.key, runnable, i)
			walk(below)
		}
	}
	for _, c := range ks.root.classes {
		walk(c)
	}
	for _, c := range ks.blocked {
		show(c.key, blocked, 0)
		walk(c)
	}
	for _, k := range ks.sorted() {
		if k.held > 0 || k.ruled || k.waits() {
			show(k, idle, 0)
		}
	}
	return list
}

// sorted are all keys by name, with the leaves of own callers.
func (ks *tree) sorted() (list []*key) {
	if ks.root.own != nil {
		list = append(list, ks.root.own)
	}
	for _, k := range ks.named {
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
