package redisengine

import (
	"cmp"
	"slices"
	"strings"

	"sema/engine"
)

// readKeys is what was read of a semaphore's keys. Leases that are over, and that no
// step has counted out, change where keys stand: so that is worked out here, as
// package ledger has it.
type readKeys struct {
	perKey int
	epoch  int64
	all    map[string]*readKey
	listed []*readKey // those that wait, in their order
}

// readKey is one of them.
type readKey struct {
	name          string
	cap, share    int
	ruled         bool
	where         byte // as written: 1 in turn, 2 aside
	base, seq     int64
	epoch         int64 // of one aside
	held, tickets int
	over          bool // leases of its have ended
	head          string
	weight        int // of its head
	place         int64
	level, tag    int64
	at            int // in the order of those that wait
	full          bool
}

// decodeKeys reads what state.lua has of keys.
func decodeKeys(keys any) *readKeys {
	r := &readKeys{all: map[string]*readKey{}}
	fields, _ := keys.([]any)
	for i := 0; i+1 < len(fields); i += 2 {
		name, _ := fields[i].(string)
		value, _ := fields[i+1].(string)
		switch {
		case name == "" && len(value) >= 48:
			r.perKey, r.epoch = int(numberAt(value)), int64(numberAt(value[24:]))
		case strings.HasPrefix(name, "k") && len(value) >= 66:
			k := r.of(name[1:])
			k.cap, k.share = int(numberAt(value[16:])), int(numberAt(value[24:]))
			k.ruled, k.where = value[32] == 1, value[33]
			k.base, k.seq, k.epoch = int64(numberAt(value[34:])), int64(numberAt(value[42:])), int64(numberAt(value[50:]))
		}
	}
	return r
}

// of is a key, also one that was not read.
func (r *readKeys) of(name string) *readKey {
	k := r.all[name]
	if k == nil {
		k = &readKey{name: name, at: 1 << 30}
		r.all[name] = k
	}
	return k
}

func (r *readKeys) holds(name string, weight int) {
	if r != nil {
		r.of(name).held += weight
	}
}

func (r *readKeys) ended(name string) {
	if r != nil {
		r.of(name).over = true
	}
}

func (r *readKeys) waits(name, id string, weight int, place int64) {
	if r == nil {
		return
	}
	k := r.of(name)
	if k.tickets++; k.head == "" || place < k.place || place == k.place && id < k.head {
		k.head, k.weight, k.place = id, weight, place
	}
}

// most is what a key may hold; 0: the limit alone says.
func (r *readKeys) most(k *readKey) int {
	switch {
	case k.cap == engine.MaxLimit:
		return 0
	case k.cap > 0 || k.name == "":
		return k.cap
	}
	return r.perKey
}

func (k *readKey) shares() int { return cmp.Or(k.share, engine.DefaultShare) }

// order works out in which order the keys stand that wait.
func (r *readKeys) order() {
	for _, k := range r.all {
		if k.tickets == 0 {
			continue
		}
		k.full = k.where == 2
		if most := r.most(k); k.over {
			k.full, k.epoch = most > 0 && k.weight <= most && k.weight > most-k.held, r.epoch
		}
		k.level = int64(k.held * engine.DefaultShare / k.shares())
		k.tag = k.base + max(1, int64(k.weight)*1000/int64(k.shares()))
		r.listed = append(r.listed, k)
	}
	slices.SortFunc(r.listed, func(a, b *readKey) int {
		if a.full != b.full {
			if a.full {
				return 1
			}
			return -1
		}
		if a.full {
			return cmp.Or(cmp.Compare(a.epoch, b.epoch), cmp.Compare(a.name, b.name))
		}
		return cmp.Or(cmp.Compare(a.level, b.level), cmp.Compare(a.tag, b.tag), cmp.Compare(a.seq, b.seq))
	})
	for i, k := range r.listed {
		k.at = i
	}
}

// states are the keys as State shows them.
func (r *readKeys) states(waiters []engine.Waiter) (list []engine.KeyState) {
	if r == nil {
		return nil
	}
	waiting := map[string]int{}
	for _, w := range waiters {
		waiting[w.Key]++
	}
	show := func(k *readKey, before int) {
		list = append(list, engine.KeyState{
			Key: k.name, Held: k.held, Waiting: waiting[k.name], Cap: r.most(k), Share: k.shares(), Ruled: k.ruled, Full: k.tickets > 0 && k.full, Before: before,
		})
	}
	for i, k := range r.listed {
		if k.full {
			i = 0
		}
		show(k, i)
	}
	var rest []*readKey
	for _, k := range r.all {
		if k.tickets == 0 && (k.held > 0 || k.ruled) {
			rest = append(rest, k)
		}
	}
	slices.SortFunc(rest, func(a, b *readKey) int { return cmp.Compare(a.name, b.name) })
	for _, k := range rest {
		show(k, 0)
	}
	return list
}
