package ledger

import (
	"cmp"
	"slices"
	"sort"
	"strings"

	"sema/engine"
	"sema/internal/protocol"
)

// This file says who is next, and keeps the lists from which that is read.
//
// The tickets that want some of the same pools are a set. The tickets of a set at a key, or below it, are a
// class. The classes of leaves have queues, in the order in which the callers came. Each class is in one of three
// states: idle, runnable or blocked.
//
// A key has keys below it, and for each set one of them is next: the one that holds the fewest whole shares. Among several of these,
// the one with the smallest finish tag is next (Golestani, "A Self-Clocked Fair Queueing Scheme for Broadband
// Applications", 1994). If the tags are equal, too, it is the one that has waited for longest. While a class is
// runnable, another class of its level is served once before it; more often with a larger share or smaller weights.
//
// A list is right until something changes for one of its classes: a head, what a key holds, or the key's rule. Each function
// that changes one of these ends with reschedule. The caps that all keys have are the exception, because a change
// concerns too many: sweep looks at the blocked classes again, and the function next finds the others when they are heads.

const (
	// unit is what a permit of weight 1 costs a key with one share of 1.
	unit = 1000

	// maxSwept is how many blocked classes a step looks at because the caps of
	// all keys have changed. The next step goes on.
	maxSwept = 128
)

// class is what waits of one set at a key, with all below it.
type class struct {
	key      *key
	set      string    // the names of the pools that its tickets want, see engine.Pools.Names; mostly ""
	waiting  int       // tickets
	queue    []*ticket // of a leaf, by place
	runnable []*class  // those that are, of the keys below it, in the order of service

	state  state
	level  int   // whole shares held
	start  int64 // since when it waits, in virtual time
	finish int64 // the virtual time at which its head will have been served
	seq    int64 // since when it waits, among equals; 0: it does not
	epoch  int   // of the caps of all keys when it was blocked
}

// state says which list has a class.
type state uint8

const (
	idle     state = iota // nobody waits, or all below it are blocked
	runnable              // nothing of its key blocks its head, and nothing below; what is above it may
	blocked               // its key blocks its head, or the head of all classes of its key
)

// pools are the names of the pools that a class's tickets want.
func (c *class) pools() []string {
	if c.set == "" {
		return nil
	}
	return strings.Split(c.set, ",")
}

// text orders classes where nothing else does, as the Lua does: by set and key.
func (c *class) text() string {
	return protocol.ClassText(c.set, c.key.name)
}

// head is the ticket of a class that is served first; nil: all below it are blocked.
func (c *class) head() *ticket {
	for len(c.runnable) > 0 {
		c = c.runnable[0]
	}
	if len(c.queue) > 0 {
		return c.queue[0]
	}
	return nil
}

// head is the ticket of a key that is served first, of the classes that skip does not pick; nil: there is none.
func (k *key) head(skip func(*class) bool) (head *ticket) {
	var best *class
	for _, c := range k.classes {
		t := c.head()
		if t == nil || skip != nil && skip(c) {
			continue
		}
		if len(c.runnable) > 0 {
			c = c.runnable[0]
		}
		if head == nil || c.key == k && byPlace(t, head) < 0 || c.key != k && c.compareSets(best) < 0 {
			head, best = t, c
		}
	}
	return head
}

// compare is the order of service of classes of one set.
func (c *class) compare(o *class) int {
	return cmp.Or(cmp.Compare(c.level, o.level), cmp.Compare(c.finish, o.finish), cmp.Compare(c.seq, o.seq))
}

// compareSets is the order of service of classes of different sets. Only the weight
// that their keys hold with pools that both want counts. If all counted, a key that holds much without those pools
// could wait for ever.
func (c *class) compareSets(o *class) int {
	others := o.pools()
	both := slices.DeleteFunc(c.pools(), func(pool string) bool { return !slices.Contains(others, pool) })
	return cmp.Or(cmp.Compare(c.key.level(both), o.key.level(both)), cmp.Compare(c.finish, o.finish), cmp.Compare(c.seq, o.seq))
}

// level is how many whole shares a key holds. With pools it counts what the key holds with one of them: the one with which
// it holds the most.
func (k *key) level(pools []string) int {
	held := 0
	for _, pool := range pools {
		held = max(held, k.heldWith[pool])
	}
	if len(pools) == 0 {
		held = k.held
	}
	return held * engine.DefaultShare / k.shares()
}

// cost is how much virtual time a weight takes of a key.
func (k *key) cost(weight int) int64 {
	return max(1, int64(weight)*unit/int64(k.shares()))
}

// hold changes what a permit's demand holds: weight at each key of its path, and amounts of pools.
func (l *Ledger) hold(d *demand, sign int) {
	for k := range d.key.path() {
		k.held += sign * d.weight
		l.noteOver(k)
		for pool := range d.takes.All() {
			if k.heldWith == nil {
				k.heldWith = map[string]int{}
			}
			k.heldWith[pool] += sign * d.weight
		}
	}
	l.usePools(d.takes, sign)
}

// count changes the number of tickets of a class, and of those above it.
func (l *Ledger) count(k *key, set string, n int) {
	for ; k != nil; k = k.up {
		c := k.class(set)
		if c == nil {
			c = &class{key: k, set: set}
			k.classes = slices.Insert(k.classes, sort.Search(len(k.classes), func(i int) bool { return k.classes[i].set >= set }), c)
		}
		c.waiting += n
	}
}

// served charges the classes of a ticket that was served, and puts them behind the others of their level.
func (l *Ledger) served(t *ticket) {
	for k := range t.key.path() {
		c := k.class(t.set)
		l.unlist(c)
		k.up.time = max(k.up.time, c.start+k.cost(t.weight)) // c.finish may belong to a ticket for which weight is reserved
		if c.waiting > 0 {
			l.stamp(c)
		}
	}
	l.reschedule(t.key.leaf())
}

// stamp puts a class behind all others of its level: it waits from now on.
func (l *Ledger) stamp(c *class) {
	l.keys.seq++
	c.start, c.seq = c.key.up.time, l.keys.seq
}

// reschedule puts the classes of a key, and of those above it, into the lists where they belong.
func (l *Ledger) reschedule(k *key) {
	for ; k.up != nil; k = k.up {
		for _, c := range k.classes {
			l.unlist(c)
		}
		l.schedule(k)
	}
	k.forgetClasses()
}

// schedule lists the classes of a key, which are in no list. An unused key is forgotten.
func (l *Ledger) schedule(k *key) {
	all := len(k.classes) > 1 && l.blocksAll(k)
	for _, c := range k.classes {
		if c.waiting == 0 {
			c.seq = 0
			continue
		}
		if c.seq == 0 {
			l.stamp(c)
		}
		switch head := c.head(); {
		case head == nil: // all below it are blocked
		case all || l.isBlocker(k, head) || k.reserved > 0 && l.blocker(&head.demand) == k:
			l.keys.listBlocked(c, l.keys.epoch)
		default:
			l.keys.listRunnable(c, head)
		}
	}
	k.forgetClasses()
	if k.unused() {
		l.forgetUnused(k)
	}
}

// forgetClasses forgets the classes of sets of which nobody waits any more.
func (k *key) forgetClasses() {
	if len(k.classes) > 1 || len(k.classes) == 1 && k.classes[0].set != "" {
		k.classes = slices.DeleteFunc(k.classes, func(c *class) bool { return c.waiting == 0 && len(c.runnable) == 0 })
	}
}

func (ks *tree) listRunnable(c *class, head *ticket) {
	c.state, c.level, c.finish = runnable, c.key.level(c.pools()), c.start+c.key.cost(head.weight)
	up := c.key.up.class(c.set)
	up.runnable = slices.Insert(up.runnable, up.indexRunnable(c), c)
	ks.runnable += bit(c.key.own == nil)
}

func (ks *tree) listBlocked(c *class, epoch int) {
	c.state, c.epoch = blocked, epoch
	ks.blocked = slices.Insert(ks.blocked, ks.indexBlocked(c), c)
}

// unlist takes a class out of the list that it is in.
func (l *Ledger) unlist(c *class) {
	ks := &l.keys
	switch c.state {
	case runnable:
		up := c.key.up.class(c.set)
		i := up.indexRunnable(c)
		up.runnable = slices.Delete(up.runnable, i, i+1)
		ks.runnable -= bit(c.key.own == nil)
	case blocked:
		i := ks.indexBlocked(c)
		ks.blocked = slices.Delete(ks.blocked, i, i+1)
	}
	c.state, c.epoch = idle, 0
}

// indexRunnable is where a class is, or belongs, among the runnable ones below this one.
func (c *class) indexRunnable(below *class) int {
	return sort.Search(len(c.runnable), func(i int) bool { return c.runnable[i].compare(below) >= 0 })
}

// indexBlocked is where a class is, or belongs, among the blocked ones.
func (ks *tree) indexBlocked(c *class) int {
	return sort.Search(len(ks.blocked), func(i int) bool {
		o := ks.blocked[i]
		return cmp.Or(cmp.Compare(o.epoch, c.epoch), strings.Compare(o.text(), c.text())) >= 0
	})
}

// unswept reports whether the caps of all keys have changed since a blocked class was looked at.
func (ks *tree) unswept() bool { return len(ks.blocked) > 0 && ks.blocked[0].epoch != ks.epoch }

// sweep looks at the blocked classes again after the caps of all keys have changed, at maxSwept of them in a step. It returns
// the first waiter of a class that it leaves to the next step; nil: of none.
func (l *Ledger) sweep() (left *ticket) {
	for ks := &l.keys; ks.unswept(); l.swept++ {
		c := ks.blocked[0]
		if l.swept == maxSwept {
			return c.head()
		}
		l.reschedule(c.key)
	}
	return nil
}

// leaves are the classes with queues in which somebody waits, in the order of service: first the runnable ones, then the
// blocked ones and what is below such.
func (ks *tree) leaves() (list []*class) {
	var add func(c *class)
	add = func(c *class) {
		for _, below := range c.runnable {
			add(below)
		}
		if len(c.queue) > 0 {
			list = append(list, c)
		}
	}
	for _, c := range ks.root.classes {
		add(c)
	}
	for _, c := range ks.blocked {
		add(c)
	}
	return list
}
