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
	line   map[queue][]engine.Waiter
	queues []queue                // those of the same pools in the order of service
	near   map[engine.Key][]queue // see nearTo
	*asked
}

// queue is who waits for a key with the same set of pools, which set names.
type queue struct {
	key engine.Key
	set string
}

func queueOf(w engine.Waiter) queue { return queue{w.Key, w.Takes.Names()} }

// LookAt finds in one walk what all that wait have in front of them.
func LookAt(st engine.State) Look {
	l := Look{State: st, keys: make(map[engine.Key]engine.KeyState, len(st.Keys)), line: map[queue][]engine.Waiter{}, near: map[engine.Key][]queue{}, asked: &asked{}}
	for _, k := range st.Keys {
		l.keys[k.Key] = k
	}
	for _, w := range st.Waiters {
		q := queueOf(w)
		if len(l.line[q]) == 0 {
			l.queues = append(l.queues, q)
		}
		l.Before = append(l.Before, len(l.line[q]))
		l.line[q] = append(l.line[q], w)
	}
	return l
}

// Bound is what a permit takes some of: what a key may hold, a pool, or the limit.
type Bound struct {
	Of                 string // " of acme", " of gpu"; "": the limit
	Text               string // how much of it is held; "": the key has no cap
	Wants, Held, Limit int
	Key                engine.Key
	Pool               string // of the limit both are empty
}

// say says how much of it is held, and what those want who go first.
func (b Bound) say(reserved int, first []engine.Waiter, more bool) string {
	text := b.Text
	if b.Wants > 1 {
		text += fmt.Sprintf(", %d wanted", b.Wants)
	}
	if reserved <= 0 {
		return text
	}
	first = slices.DeleteFunc(slices.Clone(first), func(w engine.Waiter) bool { return b.Part(w.Key, w.Takes, w.Weight) == 0 })
	by := "a caller"
	if len(first) != 1 {
		by = strings.TrimPrefix(fmt.Sprintf("%d callers", len(first)), "0 ")
	}
	if len(first) > 0 && !slices.ContainsFunc(first, func(w engine.Waiter) bool { return w.Key != first[0].Key }) {
		by += of(first[0].Key)
	}
	if more {
		by += " and others"
	}
	return fmt.Sprintf("%s, %d reserved for %s", text, reserved, by)
}

// Part is how much of it a permit takes.
func (b Bound) Part(key engine.Key, takes engine.Pools, weight int) int {
	switch {
	case b.Pool != "":
		return takes.Of(b.Pool)
	case b.Of != "" && !slices.Contains(Path(key), b.Key):
		return 0
	}
	return weight
}

// Bounds are what a waiter, or one who would ask, wants some of: its keys from the last name on, pools, and the limit.
func (l Look) Bounds(w engine.Waiter) (list []Bound) {
	for _, key := range Path(w.Key) {
		k := l.Key(key)
		b := Bound{Of: of(key), Wants: w.Weight, Held: k.Held, Limit: engine.MaxLimit, Key: key}
		if k.Cap > 0 {
			b.Limit, b.Text = k.Cap, fmt.Sprintf("%s holds %d of its %d", Title(key), k.Held, k.Cap)
		}
		list = append(list, b)
	}
	for name, n := range w.Takes.All() {
		p := Pool(l.Pools, name)
		b := Bound{Of: " of " + name, Wants: n, Pool: name, Held: p.Used, Limit: p.Limit}
		if b.Text = fmt.Sprintf("%d of %d%s held", b.Held, b.Limit, b.Of); p.Next > 0 {
			b.Text = fmt.Sprintf("%d of %d%s used, the next comes in %s", b.Held, b.Limit, b.Of, Brief(p.Next))
		}
		list = append(list, b)
	}
	list = append(list, Bound{Text: fmt.Sprintf("%d of %d held", l.Used, l.Limit), Wants: w.Weight, Held: l.Used, Limit: l.Limit})
	for i := range list {
		if l.Observed != nil { // nothing of it keeps anybody waiting
			list[i].Limit, list[i].Text = engine.MaxLimit, ""
		}
	}
	return list
}

// Why says in a few words what keeps a waiter from being served. One without an ID would ask now.
func (l Look) Why(w engine.Waiter) string {
	var texts []string
	for _, b := range l.Bounds(w) {
		switch {
		case b.Limit == 0:
			texts = append(texts, "there is no pool "+b.Pool)
		case b.Wants > b.Limit:
			texts = append(texts, fmt.Sprintf("%d is above the limit %d%s", b.Wants, b.Limit, b.Of))
		}
	}
	if len(texts) > 0 {
		return "never: " + strings.Join(texts, "; ")
	}
	for _, o := range l.Obstacles(w) {
		texts = append(texts, o.Text)
	}
	return cmp.Or(strings.Join(texts, "; "), Served)
}

// Lacks says in a few words what a waiter lacks: the pause or the bounds that have too little left, and who holds them. It is "" if
// only others go first.
func (l Look) Lacks(w engine.Waiter, who Who) string {
	var texts []string
	switch {
	case l.Paused:
		texts = append(texts, "paused by an operator")
	case l.Cooldown != nil:
		texts = append(texts, "nobody begins for "+Brief(l.Cooldown.Left))
	}
	for _, b := range l.Bounds(w) {
		if b.Text == "" || b.Held+b.Wants <= b.Limit {
			continue
		}
		by, rate := l.HeldBy(b, who), Pool(l.Pools, b.Pool).Per > 0
		switch {
		case b.Key != "" && by != "":
			b.Text += ": " + by
		case by != "" && !rate:
			b.Text += " by " + by
		}
		texts = append(texts, b.Text)
	}
	return strings.Join(texts, "; ")
}

// Key is a key of a semaphore; of one that nobody uses, what it would be.
func (l Look) Key(key engine.Key) engine.KeyState {
	if k, ok := l.keys[key]; ok {
		return k
	}
	return engine.KeyState{Key: key, Cap: CapOf(l.Caps, key), Share: engine.DefaultShare}
}

// Pool is a pool of a list; one that is not there has nothing.
func Pool(list []engine.PoolState, name string) engine.PoolState {
	for _, p := range list {
		if p.Pool == name {
			return p
		}
	}
	return engine.PoolState{Pool: name}
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
