package view

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"sema/engine"
)

// Served is what Why says if nothing is in front.
const Served = "served now"

// Look is a state as its waiters see it.
type Look struct {
	engine.State
	Before   []int // of each waiter: how many are before it in its queue, of the same key and the same pools
	keys     map[engine.Key]engine.KeyState
	held     map[lane]int          // the weight that a key holds with some of a pool; of the pool "", all that it holds
	queues   map[lane][]int        // the waiters at a key with the same set of pools, in order
	below    map[lane][]engine.Key // the runnable keys below a key, in the order of service
	rank     map[lane]int          // the place of a runnable key among those beside it
	branched map[engine.Key]bool   // keys with others below them in use
	waits    map[lane]int          // how many wait at a key, or below it
	leaves   map[engine.Key][]lane // with "", the first queues of each set; else of those below a key of one name
	sets     map[engine.Pools]string
	paths    map[engine.Key][]engine.Key
	both     map[[2]string][]string
	since    map[lane]time.Duration // how long somebody has waited at a key, or below it
}

// lane is who waits for a key, or below it, and takes some of the same pools, which set names.
type lane struct {
	key engine.Key
	set string
}

// LookAt finds in one walk what all that wait have in front of them.
func LookAt(st engine.State) Look {
	l := Look{
		State: st, keys: make(map[engine.Key]engine.KeyState, len(st.Keys)), held: map[lane]int{}, queues: map[lane][]int{},
		below: map[lane][]engine.Key{}, rank: map[lane]int{}, since: map[lane]time.Duration{}, waits: map[lane]int{}, branched: map[engine.Key]bool{}, sets: map[engine.Pools]string{}, leaves: map[engine.Key][]lane{}, paths: map[engine.Key][]engine.Key{}, both: map[[2]string][]string{},
	}
	for _, k := range st.Keys {
		l.keys[k.Key] = k
	}
	for _, h := range st.Holders {
		l.charge(l.held, h.Key, h.Takes, h.Weight)
	}
	counts := map[lane]int{}
	for i, w := range st.Waiters {
		set, blocked := w.Takes.Names(), false
		for depth, key := range Path(w.Key) {
			at, k := lane{key, set}, l.Key(key)
			if depth == 0 {
				l.Before = append(l.Before, len(l.queues[at]))
				blocked = len(l.queues[at]) > 0 // its lane is known by its first
				if len(l.queues[at]) == 0 && len(st.Pools) > 0 {
					for _, top := range []engine.Key{"", w.Key.First(1)} {
						n := lane{top, set}
						if counts[n] <= mostFirst && !slices.Contains(l.leaves[top], at) {
							counts[n]++
							l.leaves[top] = append(l.leaves[top], at)
						}
					}
				}
				l.queues[at] = append(l.queues[at], i)
			}
			l.branched[key] = l.branched[key] || depth > 1
			l.waits[at]++
			l.since[at] = max(l.since[at], w.Waiting)
			_, ranked := l.rank[at]
			blocked = blocked || ranked || k.Full || k.Cap > 0 && k.Held+w.Weight > k.Cap // of several sets, Full is about one
			if !blocked {
				up := lane{key.Above(), set}
				l.rank[at] = len(l.below[up])
				l.below[up] = append(l.below[up], key)
			}
		}
	}
	return l
}

// charge adds a weight to what a key, and those above it, hold with each pool.
func (l Look) charge(held map[lane]int, key engine.Key, takes engine.Pools, weight int) {
	for i, key := range Path(key) {
		if i > 1 {
			l.branched[key] = true
		}
		held[lane{key, ""}] += weight
		for pool := range takes.All() {
			held[lane{key, pool}] += weight
		}
	}
}

// Bound is what a permit takes some of: what a key may hold, a pool, or the limit.
type Bound struct {
	Of                 string // " of acme", " of gpu"; "": the limit
	Text               string // how much of it is held; "": the key has no cap
	Wants, Held, Limit int
	key                *engine.KeyState
	pool               string
}

// At is the key, or the pool, of a bound; the limit has neither.
func (b Bound) At() (key engine.Key, pool string) {
	if b.key != nil {
		key = b.key.Key
	}
	return key, b.pool
}

// Part is how much of it a permit takes.
func (b Bound) Part(key engine.Key, takes engine.Pools, weight int) int {
	switch {
	case b.pool != "":
		return takes.Of(b.pool)
	case b.key != nil && !slices.Contains(Path(key), b.key.Key):
		return 0
	}
	return weight
}

// Bounds are what a waiter, or one who would ask, wants some of: its keys from the last name on, pools, and the limit.
func (l Look) Bounds(w engine.Waiter) (list []Bound) {
	for _, key := range Path(w.Key) {
		k := l.Key(key)
		b := Bound{Of: of(key), Wants: w.Weight, Held: k.Held, Limit: engine.MaxLimit, key: &k}
		if k.Cap > 0 {
			b.Limit, b.Text = k.Cap, fmt.Sprintf("%s holds %d of its %d", Title(key), k.Held, k.Cap)
		}
		list = append(list, b)
	}
	for name, n := range w.Takes.All() {
		p := l.pool(name)
		b := Bound{Of: " of " + name, Wants: n, pool: name, Held: p.Used, Limit: p.Limit}
		b.Text = fmt.Sprintf("%d of %d%s held", b.Held, b.Limit, b.Of)
		list = append(list, b)
	}
	return append(list, Bound{Text: fmt.Sprintf("%d of %d held", l.Used, l.Limit), Wants: w.Weight, Held: l.Used, Limit: l.Limit})
}

// Obstacle is what keeps a waiter from being served. If all obstacles go, the waiter is served; if one stays, it is not.
// It is the pause, or those who go first, or a bound.
type Obstacle struct {
	Text     string
	Behind   int          // how many are before it in its queue
	Before   []engine.Key // beside the waiter's key: where others go first
	Bound    *Bound       // has too little left, beside what is reserved
	Reserved int          // what those who go first of other pools want of the bound
}

// Why says in a few words what keeps a waiter with so many before it in its queue from being served. One without an ID
// would ask now.
func (l Look) Why(w engine.Waiter, before int) string {
	var texts []string
	for _, b := range l.Bounds(w) {
		switch {
		case b.Limit == 0:
			texts = append(texts, "there is no pool "+b.pool)
		case b.Wants > b.Limit:
			texts = append(texts, fmt.Sprintf("%d is above the limit %d%s", b.Wants, b.Limit, b.Of))
		}
	}
	if len(texts) > 0 {
		return "never: " + strings.Join(texts, "; ")
	}
	for _, o := range l.Obstacles(w, before) {
		texts = append(texts, o.Text)
	}
	return cmp.Or(strings.Join(texts, "; "), Served)
}

// Obstacles are what Why names of a waiter that can be served. A snapshot does not tell since when somebody waits in
// virtual time, see turn.compare.
func (l Look) Obstacles(w engine.Waiter, before int) (list []Obstacle) {
	if l.Paused {
		return []Obstacle{{Text: "paused by an operator"}}
	}
	t, ahead := l.turnOf(w, before), Obstacle{Behind: before}
	var texts []string
	switch {
	case before == 1:
		texts = []string{"behind 1 other" + of(w.Key)}
	case before > 1:
		texts = []string{fmt.Sprintf("behind %d others%s", before, of(w.Key))}
	}
	for _, key := range t.path {
		if keys := t.keysBefore(key); len(keys) > 0 {
			texts = append(texts, fmt.Sprintf("keys before %s: %d", Title(key), len(keys)))
			ahead.Before = append(ahead.Before, keys...)
			for _, key := range keys {
				t.removed += t.waits[lane{key, t.set}]
			}
		}
	}
	if ahead.Text = strings.Join(texts, "; "); ahead.Text != "" {
		list = append(list, ahead)
	}
	for i, b := range t.bounds {
		o := t.first[i]
		reserved := b.Limit + t.raised[b.place()] - b.Held - b.Wants
		if t.raised[b.place()] == 0 {
			continue
		}
		text := b.Text
		if b.Wants > 1 {
			text += fmt.Sprintf(", %d wanted", b.Wants)
		}
		if reserved > 0 {
			text += fmt.Sprintf(", %d reserved for %s", reserved, o.by())
			if t.more {
				text += " and others"
			}
		}
		list = append(list, Obstacle{Text: text, Bound: &b, Reserved: reserved})
	}
	return list
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

// Path is what callers of a key are counted at, from the last name on: a queue of their own, which is beside those of
// keys below theirs, the key and those above it.
func Path(key engine.Key) []engine.Key {
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
