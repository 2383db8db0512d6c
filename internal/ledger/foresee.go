package ledger

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"time"

	"sema/engine"
)

// Foreseen is a ledger made of a State, to be asked what would happen if nobody came, and nobody gave anything back.
type Foreseen struct {
	l       *Ledger
	tickets []*ticket       // of waiters
	waiters []engine.Waiter // of the state, and who asked
}

// Foresee makes one. Permits are there as sums alone. Virtual time begins at 0 below each key, because only differences
// count.
func Foresee(st *engine.State) *Foreseen {
	l := &Ledger{Watched: true, limit: st.Limit, used: st.Used, holders: map[engine.ID]*holder{}, tickets: map[engine.ID]*ticket{}, slots: map[int]*holder{}}
	if st.Observed != nil {
		l.observed = &Observed{}
	}
	f := &Foreseen{l: l}
	l.keys.on, l.keys.caps = true, st.Caps
	for _, p := range st.Pools {
		is := pool{limit: p.Limit, used: p.Used}
		if p.Per > 0 { // at the time 0 as much has not come back yet
			is.unit = float64(p.Per.Microseconds()) / float64(p.Back)
			is.full = (float64(p.Used) - 0.5) * is.unit
		}
		*l.keys.pool(p.Pool) = is
	}
	l.foreseeKeys(st)
	for _, w := range st.Waiters {
		f.enqueue(w)
	}
	for i, t := range st.Turns {
		if c := l.key(string(t.Key)).class(t.Pools); c != nil {
			c.start, c.seq = -t.Lag, int64(i+1)
		}
	}
	l.keys.seq = int64(len(st.Turns))
	for _, t := range f.tickets { // those of a server that does not tell turns
		for k := range t.key.path() {
			if c := k.class(t.set); c.seq == 0 {
				l.stamp(c)
			}
		}
	}
	for _, k := range slices.Backward(l.keys.sorted()) {
		l.schedule(k)
	}
	return f
}

// foreseeKeys makes the keys with their weight. A state does not list all leaves of own callers: their weight is that of the key
// less that of the keys below it.
func (l *Ledger) foreseeKeys(st *engine.State) {
	for _, k := range st.Keys {
		l.key(string(k.Key))
	}
	for _, t := range st.Turns {
		l.inUse(string(t.Key))
	}
	for _, w := range st.Waiters {
		l.inUse(string(w.Key))
	}
	for _, h := range st.Holders {
		for k := range l.inUse(string(h.Key)).path() {
			for pool := range h.Takes.All() {
				if k.heldWith == nil {
					k.heldWith = map[string]int{}
				}
				k.heldWith[pool] += h.Weight
			}
		}
	}
	l.key("").held = st.Used
	for _, own := range []bool{false, true} {
		for _, s := range st.Keys {
			k := l.key(string(s.Key))
			if own != (k.depth == 0) {
				continue
			}
			if k.held, k.cap, k.share, k.ruled = s.Held, s.Cap, s.Share, true; k.own != nil { // a rule keeps it known
				k.own.held += s.Held
			}
			if !own && k.up.own != nil {
				k.up.own.held -= s.Held
			}
		}
	}
}

func (f *Foreseen) enqueue(w engine.Waiter) *ticket {
	id, err := engine.ParseID(w.ID)
	if err != nil || f.l.tickets[id] != nil {
		id = engine.ID{Client: fmt.Sprintf("%09d", len(f.tickets))}
	}
	d := demand{key: f.l.inUse(string(w.Key)), weight: w.Weight, takes: w.Takes, set: w.Takes.Names()}
	t := &ticket{entry: entry{id: id, demand: d}, lease: math.MaxInt64, place: -w.Waiting.Microseconds()}
	f.l.enqueue(t)
	f.tickets, f.waiters = append(f.tickets, t), append(f.waiters, w)
	return t
}

// Ask has one more wait. It comes after all others.
func (f *Foreseen) Ask(w engine.Waiter) {
	w.Waiting = -time.Microsecond
	f.l.reschedule(f.enqueue(w).key.leaf())
}

// KeysBefore calls say for each key of a waiter's path, from its leaf up, with the keys beside it that are served first. It
// counts as gone those who are ahead in the waiter's queue, and those whom it has named before. One that would ask is
// new at a key where nobody else is left.
func (f *Foreseen) KeysBefore(i int, asks bool, say func(key engine.Key, before []engine.Key)) {
	f.l.endRound()
	t := f.tickets[i]
	gone := 1 + position(t.class().queue, t)
	for k := range t.key.path() {
		c, up := *k.class(t.set), k.up.class(t.set)
		if asks && c.waiting <= gone {
			c.start, c.seq = k.up.time, math.MaxInt64
		}
		c.level, c.finish = k.level(c.pools()), c.start+k.cost(t.weight)
		var before []engine.Key
		for _, o := range up.runnable {
			if o.key != k && o.compare(&c) < 0 {
				before, gone = append(before, engine.Key(o.key.name)), gone+o.waiting
			}
		}
		if before != nil {
			say(engine.Key(k.name), before)
		}
	}
}

// Raise has more of a key, of a pool or of the limit. Others keep nothing free until Serve.
func (f *Foreseen) Raise(key engine.Key, pool string, n int) {
	f.l.endRound()
	switch {
	case n == 0:
	case pool != "":
		f.l.keys.pools[pool].limit += n
	case key != "":
		k := f.l.key(string(key))
		k.cap, k.ruled = f.l.capOf(k)+n, true
		f.l.reschedule(k)
	default:
		f.l.limit += n
	}
}

// Serve serves all that can be served. What others keep free then stays so, for Lacks. It reports whether anybody was
// served, or dropped.
func (f *Foreseen) Serve() bool {
	f.l.begin(0, "")
	f.l.budget = math.MaxInt
	was := len(f.l.tickets)
	f.l.grant(0, last)
	return len(f.l.tickets) < was
}

// Served reports whether a waiter got its permit.
func (f *Foreseen) Served(i int) bool { return f.l.holders[f.tickets[i].id] != nil }

// First are those who were served, and those who keep something free for themselves, without one that waits.
func (f *Foreseen) First(i int) (list []engine.Waiter) {
	keeps := map[*class]bool{}
	for _, leaf := range f.l.round.reserved {
		if t := leaf.head(func(c *class) bool { return keeps[c] }); t != nil {
			keeps[t.class()] = true
		}
	}
	for at, t := range f.tickets {
		if at != i && (f.Served(at) || keeps[t.class()] && t.class().head() == t) {
			list = append(list, f.waiters[at])
		}
	}
	return list
}

// Lacks calls say for each key, each pool and the limit that has too little left for a waiter, because others keep some free.
// The waiter may keep some free for itself, which does not count. If nothing lacks then, it was another caller of its key.
func (f *Foreseen) Lacks(i int, say func(key engine.Key, pool string, n int)) {
	t := f.tickets[i]
	if t.class() == nil {
		return // it was impossible, and was dropped
	}
	if !slices.Contains(f.l.round.reserved, t.key.leaf()) || !f.lacks(t, 1, say) {
		f.lacks(t, 0, say)
	}
}

// lacks counts a key that is blocked by another ticket: what the key gets back is for that one first.
func (f *Foreseen) lacks(t *ticket, own int, say func(key engine.Key, pool string, n int)) (any bool) {
	lacks := func(key engine.Key, pool string, n int) {
		if n > 0 {
			any = true
			say(key, pool, n)
		}
	}
	for k := range t.key.path() {
		n := t.weight - f.l.room(k) + k.reserved - own*t.weight
		if head := k.head(nil); head != nil && head != t && f.l.isBlocker(k, head) {
			n += head.weight
		} else if head = k.class(t.set).head(); head != nil && head != t && f.l.blocker(&head.demand) == k {
			n += head.weight
		}
		lacks(engine.Key(k.name), "", n)
	}
	for name, n := range t.takes.All() {
		lacks("", name, n-f.l.keys.pools[name].free(0)-own*n)
	}
	lacks("", "", t.weight-f.l.free()-own*t.weight)
	return any
}

// turns are the classes that wait, in the order in which they were stamped.
func (l *Ledger) turns() (list []engine.Turn) {
	if !l.keys.on {
		return nil
	}
	var classes []*class
	for _, k := range l.keys.sorted() {
		for _, c := range k.classes {
			if c.waiting > 0 {
				classes = append(classes, c)
			}
		}
	}
	slices.SortFunc(classes, func(a, b *class) int { return cmp.Compare(a.seq, b.seq) })
	for _, c := range classes {
		list = append(list, engine.Turn{Key: engine.Key(c.key.name), Pools: c.set, Lag: c.key.up.time - c.start})
	}
	return list
}
