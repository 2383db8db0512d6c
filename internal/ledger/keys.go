package ledger

import (
	"cmp"
	"slices"
	"sort"
	"strings"

	"sema/engine"
	"sema/internal/protocol"
)

// Among keys, the next permit goes to the key that holds the fewest whole shares;
// among such keys in the order of self-clocked fair queueing (Golestani, "A
// Self-Clocked Fair Queueing Scheme for Broadband Applications", 1994), and among
// equals to the one that stood there first. A key that is at its cap stands aside,
// and holds up nobody. While a key stands at a level, each other key is served at
// that level no more often than its weight and share allow, once if they are equal.
// Within a key the order is that of places. A semaphore without keys is one whose
// only key is "".

const (
	// unit is what a permit of weight 1 costs a key with one share of 1.
	unit = 1000

	// maxSwept is how many keys that stand aside a step looks at because the cap of
	// all keys has changed. The next step goes on.
	maxSwept = 128
)

// key is what a key holds and waits for.
type key struct {
	name       string
	held       int
	queue      []*ticket // by place
	ruled      bool      // it has an operator's rule
	cap, share int       // by that rule; 0: as for all

	where     standing
	level     int   // whole shares held
	tag       int64 // the virtual time at which its head will have been served
	base, seq int64 // since when it stands, in virtual time, and as which
	epoch     int   // of the cap of all keys when it was found full
}

// standing is where a key is.
type standing uint8

const (
	nowhere standing = iota // nobody waits
	inTurn                  // its head waits for weight
	full                    // its head waits for weight of the key's own
)

// keyed is what a ledger knows of its keys.
type keyed struct {
	on     bool            // since a key, or a cap of keys, was first named
	perKey int             // how much a key without a rule may hold; 0: there is no such cap
	all    map[string]*key // those that hold, wait, or have a rule
	turn   []*key          // by level, tag and seq
	aside  []*key          // the full ones, by epoch and name

	time  int64 // virtual: the largest tag that was served
	seq   int64 // the last one given
	epoch int   // grows whenever perKey changes
}

// key finds a key, or makes it.
func (l *Ledger) key(name string) *key {
	k := l.keys.all[name]
	if k == nil {
		k = &key{name: name}
		if l.keys.all == nil {
			l.keys.all = map[string]*key{}
		}
		l.keys.all[name] = k
	}
	return k
}

// capOf is how much weight a key may hold.
func (l *Ledger) capOf(k *key) int {
	switch {
	case k.cap > 0:
		return k.cap // an operator's
	case k.name != "" && l.keys.perKey > 0:
		return l.keys.perKey
	}
	return engine.MaxLimit
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

// reposition puts a key where it belongs. It is called whenever its head, its weight or
// its rule has changed.
func (l *Ledger) reposition(k *key) {
	fresh := k.where == nowhere && len(k.queue) > 0
	l.stepOut(k)
	if fresh {
		l.goLast(k)
	}
	l.stepIn(k)
}

// served notes that the head of a key in turn was served, and puts the key behind
// those that were not.
func (l *Ledger) served(k *key) {
	l.keys.time = max(l.keys.time, k.tag)
	l.stepOut(k)
	l.goLast(k)
	l.stepIn(k)
}

// goLast gives a key a place among those of its level: the last one.
func (l *Ledger) goLast(k *key) {
	l.keys.seq++
	k.base, k.seq = l.keys.time, l.keys.seq
}

// forgetUnused forgets a key that nobody uses.
func (l *Ledger) forgetUnused(k *key) {
	if l.keys.on && k.idle() {
		delete(l.keys.all, k.name)
	}
}

// idle reports whether a key has nothing that has to be known.
func (k *key) idle() bool { return len(k.queue) == 0 && k.held == 0 && !k.ruled }

// nameKeys makes the semaphore tell keys apart from now on. Until then all is of the key
// "", which is remembered though it may be idle: else each permit would make it anew.
func (l *Ledger) nameKeys() {
	if !l.keys.on {
		l.keys.on = true
		l.forgetUnused(l.key(""))
	}
}

// stepIn puts a key where it belongs. An unused one is forgotten.
func (l *Ledger) stepIn(k *key) {
	ks := &l.keys
	if len(k.queue) == 0 {
		l.forgetUnused(k)
		return
	}
	if l.lacks(k, k.queue[0].id.Weight) {
		ks.stepAside(k, ks.epoch)
	} else {
		ks.stepInTurn(k)
	}
}

func (ks *keyed) stepInTurn(k *key) {
	k.where, k.level, k.tag = inTurn, k.held*engine.DefaultShare/k.shares(), k.base+k.cost(k.queue[0].id.Weight)
	ks.turn = slices.Insert(ks.turn, ks.turns(k), k)
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
		i := ks.turns(k)
		ks.turn = slices.Delete(ks.turn, i, i+1)
	case full:
		i := ks.besides(k)
		ks.aside = slices.Delete(ks.aside, i, i+1)
	}
	k.where, k.epoch = nowhere, 0
}

// turns is where a key is, or belongs, among those in turn.
func (ks *keyed) turns(k *key) int {
	return sort.Search(len(ks.turn), func(i int) bool {
		o := ks.turn[i]
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

// sweep has keys that stand aside look at the cap of all keys again, which has
// changed, but for maxSwept of them in a step.
func (l *Ledger) sweep() {
	ks := &l.keys
	for len(ks.aside) > 0 && ks.aside[0].epoch != ks.epoch {
		k := ks.aside[0]
		if l.swept == maxSwept {
			l.goOn(k.queue[0])
			return
		}
		l.swept++
		l.reposition(k)
	}
}

// setPerKey changes how much a key without a rule may hold.
func (l *Ledger) setPerKey(most int) {
	if l.keys.perKey != most {
		l.nameKeys()
		l.keys.perKey, l.limited = most, true
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
	if r.Kind == protocol.SetKey {
		k.ruled, k.cap, k.share = true, cmp.Or(r.Cap, k.cap), cmp.Or(r.Share, k.share)
	} else {
		k.ruled, k.cap, k.share = false, 0, 0
	}
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
	return l.key(r.Key)
}

// ruled reports whether a key has a rule, which outlives an idle semaphore.
func (l *Ledger) ruled() bool {
	for _, k := range l.keys.all {
		if k.ruled {
			return true
		}
	}
	return false
}

// inOrder are the tickets of the keys in turn, key by key, and then of those aside.
func (l *Ledger) inOrder() []*ticket {
	var list []*ticket
	for _, k := range l.keys.standing() {
		list = append(list, k.queue...)
	}
	return list
}

// byPlace are all tickets by their places, whatever their keys.
func (l *Ledger) byPlace() []*ticket {
	switch turn, aside := l.keys.turn, l.keys.aside; {
	case len(turn) == 1 && len(aside) == 0:
		return turn[0].queue
	case len(aside) == 1 && len(turn) == 0:
		return aside[0].queue
	}
	list := l.inOrder()
	slices.SortFunc(list, byPlace)
	return list
}

// anyTicket reports whether f picks any ticket.
func (l *Ledger) anyTicket(f func(*ticket) bool) bool {
	picks := func(k *key) bool { return slices.ContainsFunc(k.queue, f) }
	return slices.ContainsFunc(l.keys.turn, picks) || slices.ContainsFunc(l.keys.aside, picks)
}

// standing are the keys that wait: those in turn, and those aside.
func (ks *keyed) standing() []*key { return slices.Concat(ks.turn, ks.aside) }

// keyStates are the keys as State shows them: those in turn, those aside, and those
// that only hold, or have a rule.
func (l *Ledger) keyStates(now int64) (list []engine.KeyState) {
	if !l.keys.on {
		return nil
	}
	show := func(k *key, before int) {
		waiting := 0
		for _, t := range k.queue {
			waiting += bit(!t.silent(now))
		}
		most := l.capOf(k)
		if most == engine.MaxLimit {
			most = 0
		}
		list = append(list, engine.KeyState{Key: k.name, Held: k.held, Waiting: waiting, Cap: most, Share: k.shares(), Ruled: k.ruled, Full: k.where == full, Before: before})
	}
	for i, k := range l.keys.turn {
		show(k, i)
	}
	for _, k := range l.keys.aside {
		show(k, 0)
	}
	var rest []*key
	for _, k := range l.keys.all {
		if k.where == nowhere {
			rest = append(rest, k)
		}
	}
	slices.SortFunc(rest, func(a, b *key) int { return strings.Compare(a.name, b.name) })
	for _, k := range rest {
		show(k, 0)
	}
	return list
}

func bit(b bool) int {
	if b {
		return 1
	}
	return 0
}
