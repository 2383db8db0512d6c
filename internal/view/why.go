package view

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"sema/engine"
)

// Served is what Why says if nothing is in front.
const Served = "served now"

// Look is a state as its waiters see it.
type Look struct {
	engine.State
	Before []int // of each waiter: how many are before it in its queue, of the same key and the same pools
	keys   map[engine.Key]engine.KeyState
	held   map[lane]int    // the weight that a key holds with some of a pool; of the pool "", all that it holds
	turn   map[lane]int    // of each lane in turn: how many of those beside it are served before it
	keep   []engine.Waiter // those who may have a reservation: the first of each set that no cap blocks
}

// lane is who waits for a key, or below it, and takes some of the same pools, which set names.
type lane struct {
	key engine.Key
	set string
}

// LookAt finds in one walk what all that wait have in front of them.
func LookAt(st engine.State) Look {
	l := Look{State: st, keys: make(map[engine.Key]engine.KeyState, len(st.Keys)), held: map[lane]int{}, turn: map[lane]int{}}
	for _, k := range st.Keys {
		l.keys[k.Key] = k
	}
	for _, h := range st.Holders {
		for _, key := range path(h.Key) {
			l.held[lane{key, ""}] += h.Weight
			for pool := range h.Takes.All() {
				l.held[lane{key, pool}] += h.Weight
			}
		}
	}
	queues, below, kept := map[lane]int{}, map[lane]int{}, map[string]bool{}
	for _, w := range st.Waiters {
		set, full := w.Takes.Names(), false
		l.Before = append(l.Before, queues[lane{w.Key, set}])
		queues[lane{w.Key, set}]++
		for _, key := range path(w.Key) {
			k := l.keys[key]
			if full = k.Full || k.Cap > 0 && k.Held+w.Weight > k.Cap; full { // of several sets, Full is about one
				break
			}
			if _, ok := l.turn[lane{key, set}]; !ok {
				l.turn[lane{key, set}] = below[lane{key.Above(), set}]
				below[lane{key.Above(), set}]++
			}
		}
		if !full && !kept[set] {
			l.keep, kept[set] = append(l.keep, w), true
		}
	}
	return l
}

// Bound is what a permit takes some of: what a key may hold, a pool, or the limit.
type Bound struct {
	Of                 string // " of acme", " of gpu"; "": the limit
	Text               string // how much of it is held; "": the key has no cap
	Wants, Held, Limit int
	key                *engine.KeyState
	pool               string
}

// Part is how much of it a permit takes.
func (b Bound) Part(key engine.Key, takes engine.Pools, weight int) int {
	switch {
	case b.pool != "":
		return takes.Of(b.pool)
	case b.key != nil && !slices.Contains(path(key), b.key.Key):
		return 0
	}
	return weight
}

// Bounds are what a waiter, or one who would ask, wants some of: its keys from the last name on, pools, and the limit.
func (l Look) Bounds(w engine.Waiter) (list []Bound) {
	for _, key := range path(w.Key) {
		k := l.Key(key)
		b := Bound{Of: of(key), Wants: w.Weight, Held: k.Held, Limit: engine.MaxLimit, key: &k}
		if k.Cap > 0 {
			b.Limit, b.Text = k.Cap, fmt.Sprintf("%s holds %d of its %d", Title(key), k.Held, k.Cap)
		}
		list = append(list, b)
	}
	for name, n := range w.Takes.All() {
		b := Bound{Of: " of " + name, Wants: n, pool: name}
		for _, p := range l.Pools {
			if p.Pool == name {
				b.Held, b.Limit = p.Used, p.Limit
			}
		}
		b.Text = fmt.Sprintf("%d of %d%s held", b.Held, b.Limit, b.Of)
		list = append(list, b)
	}
	return append(list, Bound{Text: fmt.Sprintf("%d of %d held", l.Used, l.Limit), Wants: w.Weight, Held: l.Used, Limit: l.Limit})
}

// Why says in a few words what stands in front of a waiter with so many before it in its queue. One without an ID would
// ask now. Beside other obstacles a snapshot does not tell whether those of other pools go first. So what they reserve
// is said then of pools alone.
func (l Look) Why(w engine.Waiter, before int) string {
	var never, obstacles []string
	switch {
	case before == 1:
		obstacles = []string{"behind 1 other" + of(w.Key)}
	case before > 1:
		obstacles = []string{fmt.Sprintf("behind %d others%s", before, of(w.Key))}
	}
	first, aside := before == 0, false // of those that want the same pools; at the cap of a key
	for _, b := range l.Bounds(w) {
		free, ahead, full, text := b.Limit-b.Held, 0, false, b.Text
		if b.key != nil {
			asks := w.ID == "" && first && !aside // it would be the first there
			full = b.key.Full && (!asks || len(l.Pools) > 0)
			aside = aside || full || b.Wants > free
			ahead = l.ahead(b.key.Key, w.Takes.Names(), asks && !aside)
			first = first && ahead == 0
		}
		if b.Wants > 1 {
			text += fmt.Sprintf(", %d wanted", b.Wants)
		}
		switch {
		case b.Limit == 0:
			never = append(never, "there is no pool "+b.pool)
		case b.Wants > b.Limit:
			never = append(never, fmt.Sprintf("%d is above the limit %d%s", b.Wants, b.Limit, b.Of))
		case b.Wants > free && b.Of == "" && len(obstacles) > 0: // a full limit needs no mention beside others
		case b.Wants > free:
			obstacles = append(obstacles, text)
		case full:
			obstacles = append(obstacles, text+", the rest reserved for its first waiter")
		case ahead > 0:
			obstacles = append(obstacles, fmt.Sprintf("keys before %s: %d", Title(b.key.Key), ahead))
		case len(obstacles) == 0 || b.pool != "" || b.key == nil && !first && !aside:
			if kept, by := l.reserved(b, w, first); b.Wants > free-kept {
				obstacles = append(obstacles, fmt.Sprintf("%s, %d reserved for %s", text, kept, by))
			}
		}
	}
	switch {
	case len(never) > 0:
		return "never: " + strings.Join(never, "; ")
	case l.Paused:
		return "paused by an operator"
	case len(obstacles) == 0:
		return Served
	}
	return strings.Join(obstacles, "; ")
}

// ahead is how many keys beside one are served before it, of those where callers wait for the same pools. Where nobody
// waits yet, one who asks goes behind those that hold as much.
func (l Look) ahead(key engine.Key, set string, asks bool) int {
	n, waits := l.turn[lane{key, set}]
	if waits || !asks {
		return n
	}
	for o := range l.turn {
		if o.set == set && o.key.Above() == key.Above() && l.shares(o.key, set) <= l.shares(key, set) {
			n++
		}
	}
	return n
}

// shares is how many whole shares a key holds among callers of the same pools. What counts is the pool with which it holds most.
func (l Look) shares(key engine.Key, set string) (most int) {
	for pool := range strings.SplitSeq(set, ",") {
		most = max(most, l.held[lane{key, pool}])
	}
	return most * engine.DefaultShare / cmp.Or(l.keys[key].Share, engine.DefaultShare)
}

// reserved is how much of a bound others keep free, and who they are. The first of its pools keeps it for itself; of
// other pools, those are served later whose keys hold more with the pools that both want.
func (l Look) reserved(b Bound, w engine.Waiter, first bool) (sum int, by string) {
	for _, o := range l.keep {
		n, same := b.Part(o.Key, o.Takes, o.Weight), o.Takes.Names() == w.Takes.Names()
		both := strings.Join(slices.DeleteFunc(strings.Split(o.Takes.Names(), ","), func(pool string) bool { return w.Takes.Of(pool) == 0 }), ",")
		if n == 0 || same == first || !same && l.shares(o.Key.First(1), both) > l.shares(w.Key.First(1), both) {
			continue
		}
		if sum += n; by != "" {
			by += " and "
		}
		by += "a caller" + of(o.Key)
	}
	return sum, by
}

// Key is a key of a semaphore; of one that nobody uses, what it would be.
func (l Look) Key(key engine.Key) engine.KeyState {
	if k, ok := l.keys[key]; ok {
		return k
	}
	return engine.KeyState{Key: key, Cap: CapOf(l.Caps, key), Share: engine.DefaultShare}
}

// Keyed reports whether anything tells keys apart. In a semaphore with pools callers without a key are a key, "".
func Keyed(st engine.State) bool {
	return st.Caps != (engine.Caps{}) || slices.ContainsFunc(st.Keys, func(k engine.KeyState) bool { return k.Key != "" })
}

// CapOf is the cap of a key without a rule; 0: none.
func CapOf(caps engine.Caps, key engine.Key) int {
	if key == "" || key.Own() {
		return 0
	}
	return caps[key.Level()-1]
}

// path is what callers of a key are counted at, from the last name on: a queue of their own, which is beside those of
// keys below theirs, the key and those above it.
func path(key engine.Key) []engine.Key {
	if key != "" {
		key += engine.KeySeparator
	}
	list := []engine.Key{key}
	for key = key.Above(); key != ""; key = key.Above() {
		list = append(list, key)
	}
	return list
}

// of names a key as an owner.
func of(key engine.Key) string {
	if key == "" {
		return ""
	}
	return " of " + Title(key)
}
