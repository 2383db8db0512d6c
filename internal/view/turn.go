package view

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"sema/engine"
)

// mostFirst bounds how many of those who go first are counted, and of how many keys, so that a page of many rows costs little.
const mostFirst = 16

// turn lets those that are served before a waiter, of other pools, take what they want; so what is left is known.
// It follows the ledger: see internal/ledger/blocked.go and serve.go.
type turn struct {
	Look
	w          engine.Waiter
	set        string
	path       []engine.Key
	bounds     []Bound
	removed    int                // how many others go away with what is named already
	first      []first            // of each bound
	raised     map[place]int      // by how much bounds count as raised
	leaves     []lane             // the first ones of each set, and those below the waiter's keys
	more       bool               // more than mostFirst go first
	gone       map[place]int      // what others have taken, or reserved
	took       map[lane]int       // the weight that they hold now
	start, seq map[lane]int       // since when they wait after they were served: in virtual time, and among equals
	time       map[engine.Key]int // virtual, of those below a key
	next       map[lane]int       // how many of a queue are done with
	shut       map[lane]bool      // lanes that a key blocks; with the key "", sets with a pool that somebody awaits
}

// first is what those who go first take of a bound or keep free.
type first struct {
	sum int
	who []engine.Key
}

func (f first) by() string {
	if len(f.who) == 0 {
		return "others"
	}
	switch same := slices.Compact(slices.Clone(f.who)); {
	case len(f.who) == 1:
		return "a caller" + of(f.who[0])
	case len(same) == 1:
		return fmt.Sprintf("%d callers%s", len(f.who), of(same[0]))
	}
	return fmt.Sprintf("%d callers", len(f.who))
}

// place tells bounds apart: a key, a pool, or the limit.
type place struct {
	isKey bool
	name  string
}

func (b Bound) place() place {
	key, pool := b.At()
	return place{b.key != nil, string(key) + pool}
}

// turnOf finds which bounds have to be raised, and by how much, for a waiter to be served. First each that is full counts
// as raised for all who go first, because what they take of it another may need. Then it is tried with what they
// took: a smaller amount changes who is blocked meanwhile.
func (l Look) turnOf(w engine.Waiter, before int) *turn {
	t := &turn{Look: l, removed: before, w: w, set: w.Takes.Names(), path: Path(w.Key), bounds: l.Bounds(w), raised: map[place]int{}}
	t.leaves = slices.Clone(l.leaves[""])
	for _, at := range l.leaves[w.Key.First(1)] {
		if !slices.Contains(t.leaves, at) {
			t.leaves = append(t.leaves, at)
		}
	}
	t.serve()
	for t.raise(func(int) int { return engine.MaxLimit }) {
		t.serve()
	}
	for i, b := range t.bounds {
		if t.raised[b.place()] > 0 {
			t.raised[b.place()] = max(0, -t.left(i)+engine.MaxLimit)
		}
	}
	if len(t.Pools) == 0 || t.more {
		return t
	}
	t.serve()
	for range mostFirst {
		if !t.raise(func(lack int) int { return lack }) {
			break
		}
		t.serve()
	}
	for _, b := range t.bounds {
		if was := t.raised[b.place()]; was > 0 {
			t.raised[b.place()] = 0
			if t.serve(); t.raise(nil) {
				t.raised[b.place()] = was
			}
		}
	}
	t.serve()
	return t
}

// left is how much a bound has beside what the waiter wants.
func (t *turn) left(i int) int {
	b := t.bounds[i]
	return b.Limit + t.raised[b.place()] - b.Held - t.first[i].sum - b.Wants
}

// raise raises the bounds that lack room, if by is not nil. It reports whether there are any.
func (t *turn) raise(by func(lack int) int) (any bool) {
	for i, b := range t.bounds {
		if n := t.left(i); n < 0 {
			if any = true; by != nil {
				t.raised[b.place()] += by(-n)
			}
		}
	}
	return any
}

// serve goes through those who are served before the waiter. One that a pool or the limit blocks keeps free what it wants,
// until somebody is served: then the order is found anew.
func (t *turn) serve() {
	t.took, t.next, t.start, t.seq, t.time = map[lane]int{}, map[lane]int{}, map[lane]int{}, map[lane]int{}, map[engine.Key]int{}
	t.first, t.gone, t.shut = make([]first, len(t.bounds)), map[place]int{}, map[lane]bool{}
	if len(t.Pools) == 0 {
		return // there is one set, in an order that is known
	}
	var done []engine.Waiter
	peak := make([]int, len(t.bounds)) // what is reserved while others are served counts as well
	for t.more = true; len(done) < mostFirst; {
		o, leaf := t.head("")
		if t.more = false; o.ID == t.w.ID || o.Weight == 0 {
			break
		}
		awaits, full := false, t.short(place{}, o.Weight, t.Limit-t.Used)
		for pool, n := range o.Takes.All() {
			if p := t.pool(pool); t.short(place{false, pool}, n, p.Limit-p.Used) {
				awaits = true
				for at := range t.queues {
					t.shut[lane{"", at.set}] = t.shut[lane{"", at.set}] || slices.Contains(strings.Split(at.set, ","), pool)
				}
			}
		}
		if full || awaits {
			if t.take(o); full {
				break
			}
			continue
		}
		t.more = true
		for i, b := range t.bounds {
			if n := b.Part(o.Key, o.Takes, o.Weight); n > 0 {
				peak[i] = max(peak[i], t.first[i].sum+n-b.Wants)
			}
		}
		done = append(done, o)
		t.next[leaf]++
		t.charge(t.took, o.Key, o.Takes, o.Weight)
		for _, key := range Path(o.Key) {
			at, up := lane{key, leaf.set}, key.Above()
			t.time[up] = max(t.time[up], t.start[at]+t.cost(key, o.Weight))
			t.start[at], t.seq[at] = t.time[up], len(done)
		}
		t.first, t.gone, t.shut = make([]first, len(t.bounds)), map[place]int{}, map[lane]bool{}
		for _, o := range done {
			t.take(o)
		}
	}
	for i := range t.first {
		t.first[i].sum = max(t.first[i].sum, peak[i])
	}
	if shut := t.shut[lane{"", t.set}]; !shut {
		t.firstAtKeys()
	}
}

// take has less left of each bound by what a waiter wants.
func (t *turn) take(o engine.Waiter) {
	t.gone[place{}] += o.Weight
	for pool, n := range o.Takes.All() {
		t.gone[place{false, pool}] += n
	}
	for _, key := range Path(o.Key) {
		t.gone[place{true, string(key)}] += o.Weight
	}
	for i, b := range t.bounds {
		t.count(i, o, b.Part(o.Key, o.Takes, o.Weight))
	}
}

func (t *turn) count(i int, o engine.Waiter, n int) {
	if n > 0 {
		t.first[i].sum += n
		t.first[i].who = append(t.first[i].who, o.Key)
	}
}

// firstAtKeys finds keys that block the first of all their callers. What they get back is for that one.
func (t *turn) firstAtKeys() {
	for i, b := range t.bounds {
		if b.key == nil || b.key.Cap == 0 {
			continue
		}
		t.shut = map[lane]bool{}
		if o, _ := t.head(b.key.Key); o.ID != t.w.ID && o.Weight > b.key.Cap+t.raised[b.place()]%engine.MaxLimit-b.key.Held-t.took[lane{b.key.Key, ""}] {
			t.count(i, o, o.Weight)
		}
	}
}

// short reports whether a bound has less than n left.
func (t *turn) short(at place, n, left int) bool { return n > left+t.raised[at]-t.gone[at] }

// blocker is the lowest key, below another, that blocks a waiter, or the first of all its callers.
func (t *turn) blocker(o engine.Waiter, below engine.Key) (engine.Key, bool) {
	for _, key := range Path(o.Key) {
		if key == below {
			break
		}
		at, k := place{true, string(key)}, t.Key(key)
		if k.Full && t.raised[at] == 0 {
			return key, true
		} else if k.Cap == 0 {
			continue
		} else if t.short(at, o.Weight, k.Cap-k.Held) {
			return key, true
		} else if first, _ := t.head(key); first.Weight > k.Cap+t.raised[at]-k.Held-t.took[lane{key, ""}] {
			return key, true
		}
	}
	return "", false
}

// head is who is served next below a key, "" for all: the first of each set is compared with the best so far, as in the
// ledger. Of its set the waiter is the first, unless keys go before it.
func (t *turn) head(above engine.Key) (best engine.Waiter, leaf lane) {
	depth, heads, leaves := len(above.Names()), map[string]engine.Waiter{}, map[string]lane{}
	for again := true; again; {
		again = false
		clear(heads)
		clear(leaves)
		if !t.shut[lane{"", t.set}] && (above == "" || slices.Contains(t.path, above)) {
			heads[t.set] = t.w
		}
		for _, at := range t.leaves {
			queue := t.queues[at]
			if t.next[at] >= len(queue) || t.shut[lane{"", at.set}] || at.set == t.set && at.key == t.path[0] {
				continue
			}
			o := t.Waiters[queue[t.next[at]]]
			keys := Path(o.Key)
			if above != "" {
				i := slices.Index(keys, above)
				if i < 0 {
					continue
				}
				keys = keys[:i]
			}
			if slices.ContainsFunc(keys, func(k engine.Key) bool { return t.shut[lane{k + "\x02", at.set}] }) {
				continue
			}
			if was, ok := heads[at.set]; !ok || t.before(o, was, depth) {
				heads[at.set], leaves[at.set] = o, at
			}
		}
		for set := range leaves { // a lane is blocked by its first
			if key, blocked := t.blocker(heads[set], above); blocked {
				t.shut[lane{key + "\x02", set}], again = true, true
			}
		}
	}
	for i, set := range slices.Sorted(maps.Keys(heads)) {
		if i == 0 || t.before(heads[set], best, depth) {
			best, leaf = heads[set], leaves[set]
		}
	}
	return best, leaf
}

// before reports whether a waiter is served before another: of the same pools, by the first keys in which their paths
// differ; of others, by those at a depth.
func (t *turn) before(a, b engine.Waiter, depth int) bool {
	pa, pb := t.down(a.Key), t.down(b.Key)
	i := depth
	if i > 0 && i == len(pa)-1 && i == len(pb)-1 && !t.branched[pa[i-1]] { // in one queue
		return b.ID == "" || a.ID != "" && a.Waiting > b.Waiting
	}
	same := t.setOf(a.Takes) == t.setOf(b.Takes)
	if same && a.Key == b.Key {
		return b.ID == "" || a.ID != "" && a.Waiting > b.Waiting
	}
	for same && i < len(pa)-1 && i < len(pb)-1 && pa[i] == pb[i] {
		i++
	}
	return t.compare(a, b, pa[i], pb[i]) < 0
}

// keysBefore are the keys beside those of the waiter that are served before them, of those where callers wait for the same
// pools. With pools, serve counts what those callers want.
func (t *turn) keysBefore(key engine.Key) (keys []engine.Key) {
	if len(t.Pools) > 0 {
		return nil
	}
	at, beside := lane{key, t.set}, t.below[lane{key.Above(), t.set}]
	if n, ok := t.rank[at]; ok && !t.fresh(t.w, at) {
		if head, ok := t.firstBelow(at); ok && head.Weight == t.w.Weight {
			return slices.Clip(beside[:n])
		}
	}
	for _, o := range beside {
		if head, ok := t.firstBelow(lane{o, t.set}); ok && o != key && t.compare(head, t.w, o, key) < 0 {
			keys = append(keys, o)
		}
	}
	return keys
}

// firstBelow is who is served first in a lane; ok is false if keys block all.
func (t *turn) firstBelow(at lane) (o engine.Waiter, ok bool) {
	blocked := func(o engine.Waiter) bool {
		k := t.Key(at.key)
		return k.Cap > 0 && t.short(place{true, string(at.key)}, o.Weight, k.Cap-k.Held)
	}
	if len(t.queues[at]) > 0 {
		o = t.Waiters[t.queues[at][0]]
		return o, !blocked(o)
	}
	for _, key := range t.below[at] {
		if o, ok = t.firstBelow(lane{key, at.set}); ok {
			return o, !blocked(o)
		}
	}
	return o, false
}

// compare is the order of service of two waiters at keys beside each other: of those that hold fewer whole shares first;
// then by finish tags, as if all had begun to wait at once; then of who has waited for longer. Of the same pools
// the snapshot's order is known.
func (t *turn) compare(a, b engine.Waiter, ka, kb engine.Key) int {
	at, bt := lane{ka, t.setOf(a.Takes)}, lane{kb, t.setOf(b.Takes)}
	both := t.bothOf(at.set, bt.set)
	if by := cmp.Compare(t.level(ka, both), t.level(kb, both)); by != 0 {
		return by
	}
	ra, ok := t.rank[at]
	rb, too := t.rank[bt]
	if at.set == bt.set && ok && too && !t.fresh(b, bt) && t.took[lane{ka, ""}]+t.took[lane{kb, ""}] == 0 {
		if head, ok := t.firstBelow(bt); ok && head.Weight == b.Weight {
			return cmp.Compare(ra, rb)
		}
	}
	return cmp.Or(cmp.Compare(t.start[at]+t.cost(ka, a.Weight), t.start[bt]+t.cost(kb, b.Weight)), cmp.Compare(t.seq[at], t.seq[bt]), cmp.Compare(t.waited(b, bt), t.waited(a, at)))
}

// setOf, down and bothOf remember what a look asks for often: the names of pools, the path of a key from its first name on, and
// the pools of two sets.
func (l Look) setOf(takes engine.Pools) string {
	set, ok := l.sets[takes]
	if !ok {
		set = takes.Names()
		l.sets[takes] = set
	}
	return set
}

func (l Look) down(key engine.Key) []engine.Key {
	path, ok := l.paths[key]
	if !ok {
		path = Path(key)
		slices.Reverse(path)
		l.paths[key] = path
	}
	return path
}

func (l Look) bothOf(a, b string) []string {
	both, ok := l.both[[2]string{a, b}]
	if !ok {
		others := strings.Split(b, ",")
		both = slices.DeleteFunc(strings.Split(a, ","), func(pool string) bool { return pool == "" || !slices.Contains(others, pool) })
		l.both[[2]string{a, b}] = both
	}
	return both
}

// waited is how long somebody has waited in a lane where a waiter is; below 0 if it would ask now.
func (t *turn) waited(w engine.Waiter, at lane) time.Duration {
	if t.fresh(w, at) {
		return -1
	}
	return max(t.since[at], w.Waiting)
}

// cost is how much virtual time a weight takes of a key.
func (t *turn) cost(key engine.Key, weight int) int {
	return max(1, weight*1000/cmp.Or(t.Key(key).Share, engine.DefaultShare))
}

// fresh reports whether a waiter would be the first of a lane.
func (t *turn) fresh(w engine.Waiter, at lane) bool { return w.ID == "" && t.waits[at] <= t.removed }

// level is how many whole shares a key holds: with that one of some pools with which it holds the most; in all without any.
func (t *turn) level(key engine.Key, pools []string) (most int) {
	if len(pools) == 0 {
		pools = []string{""}
	}
	for _, pool := range pools {
		most = max(most, t.held[lane{key, pool}]+t.took[lane{key, pool}])
	}
	return most * engine.DefaultShare / cmp.Or(t.Key(key).Share, engine.DefaultShare)
}

func (l Look) pool(name string) engine.PoolState {
	for _, p := range l.Pools {
		if p.Pool == name {
			return p
		}
	}
	return engine.PoolState{Pool: name}
}
