package view_test

import (
	"strings"
	"testing"

	"sema/engine"
	"sema/internal/view"
)

// keyed returns the state of a semaphore with keys and a limit of 10.
func keyed(used int, keys ...engine.KeyState) engine.State {
	return engine.State{Limit: 10, Used: used, Keys: keys}
}

func TestWhy(t *testing.T) {
	queue := func(weights ...int) (list []engine.Waiter) {
		for _, w := range weights {
			list = append(list, engine.Waiter{Weight: w})
		}
		return list
	}
	for _, c := range []struct {
		name           string
		st             engine.State
		weight, before int
		want           string
		key            engine.Key
	}{
		{"free", engine.State{Limit: 3, Used: 1}, 2, 0, "served now", ""},
		{"too heavy", engine.State{Limit: 3, Paused: true}, 4, 0, "never: weight 4 is above the limit 3", ""},
		{"paused", engine.State{Limit: 3, Paused: true, Waiters: queue(1)}, 1, 1, "paused by an operator", ""},
		{"heavy head", engine.State{Limit: 3, Used: 1, Waiters: queue(3)}, 1, 1, "behind 1 other; the first wants 3, 2 of 3 free", ""},
		{"behind", engine.State{Limit: 3, Used: 3, Waiters: queue(1, 1)}, 1, 2, "behind 2 others", ""},
		{"about to be served", engine.State{Limit: 3, Used: 1, Waiters: queue(1)}, 1, 1, "behind 1 other", ""},
		{"lowered", engine.State{Limit: 2, Used: 3}, 1, 0, "next in line; 3 held, more than the limit 2", ""},
		{"wants more", engine.State{Limit: 3, Used: 2}, 2, 0, "next in line; wants 2, 1 of 3 free", ""},
		{"full", engine.State{Limit: 1, Used: 1}, 1, 0, "next in line; 0 of 1 free", ""},
		{"above the cap", keyed(5, engine.KeyState{Key: "acme", Cap: 2}), 3, 0, "never: weight 3 is above the 2 that acme may hold", "acme"},
		{"full", keyed(5, engine.KeyState{Key: "acme", Cap: 2, Held: 2, Full: true}), 1, 0, "acme holds 2 of its 2", "acme"},
		{"behind in a full key", keyed(5, engine.KeyState{Key: "acme", Cap: 2, Held: 2, Full: true}), 1, 3, "behind 3 others of acme; acme holds 2 of its 2", "acme"},
		{"keys before", keyed(5, engine.KeyState{Key: "acme", Before: 7}), 1, 0, "7 keys go before acme", "acme"},
		{"a key before", keyed(5, engine.KeyState{Key: "", Before: 1}), 1, 0, "1 key goes before the caller without a key", ""},
		{"the next key", keyed(7, engine.KeyState{Key: "acme"}), 10, 0, "acme is next; wants 10, 3 of 10 free", "acme"},
	} {
		if got := view.Why(c.st, c.key, "", c.weight, c.before); got != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}

// nested makes a key of names with slashes between. A slash at the end stands for a key's own callers.
func nested(text string) engine.Key {
	return engine.Key(strings.ReplaceAll(text, "/", engine.KeySeparator))
}

// The obstacles of all levels are said, the lowest first.
func TestWhyByLevel(t *testing.T) {
	waiter := func(key string, weight int) engine.Waiter { return engine.Waiter{Key: nested(key), Weight: weight} }
	state := func(key string, of engine.KeyState) engine.KeyState {
		of.Key, of.Share = nested(key), engine.DefaultShare
		return of
	}
	full := func(key string, held, cap int) engine.KeyState {
		return state(key, engine.KeyState{Held: held, Cap: cap, Waiting: 1, Full: true})
	}
	turn := func(key string, before int) engine.KeyState {
		return state(key, engine.KeyState{Cap: 20, Waiting: 1, Before: before, InTurn: true})
	}
	for _, c := range []struct {
		name           string
		keys           []engine.KeyState
		waiters        []engine.Waiter
		key            string
		weight, before int
		want           string
	}{
		{"nothing", []engine.KeyState{turn("acme", 0), turn("acme/alice", 0)}, nil, "acme/alice", 1, 0, "served now"},
		{"next", []engine.KeyState{turn("acme", 0), turn("acme/alice", 0)}, nil, "acme/alice", 9, 0, "acme/alice is next; wants 9, 8 of 30 free"},
		{"leaf full", []engine.KeyState{turn("acme", 0), full("acme/alice", 4, 4)}, nil, "acme/alice", 1, 0, "acme/alice holds 4 of its 4"},
		{"both full, and only the leaf is the engine's reason", []engine.KeyState{state("acme", engine.KeyState{Held: 20, Cap: 20, Waiting: 1}), full("acme/alice", 4, 4)}, nil, "acme/alice", 1, 0, "acme/alice holds 4 of its 4; acme holds 20 of its 20"},
		{"parent full", []engine.KeyState{full("acme", 20, 20), turn("acme/alice", 0)}, nil, "acme/alice", 1, 0, "acme holds 20 of its 20"},
		{"both full", []engine.KeyState{full("acme", 20, 20), full("acme/alice", 4, 4)}, nil, "acme/alice", 1, 0, "acme/alice holds 4 of its 4; acme holds 20 of its 20"},
		{"behind at a full parent", []engine.KeyState{full("acme", 20, 20), turn("acme/alice", 0)}, nil, "acme/alice", 1, 2, "behind 2 others of acme/alice; acme holds 20 of its 20"},
		{"keys before, at one level", []engine.KeyState{turn("acme", 0), turn("acme/alice", 3)}, nil, "acme/alice", 1, 0, "3 keys of acme go before acme/alice"},
		{"keys before, at both", []engine.KeyState{turn("acme", 2), turn("acme/alice", 1)}, nil, "acme/alice", 1, 0, "1 key of acme goes before acme/alice; 2 keys go before acme"},
		{"full below, keys before above", []engine.KeyState{turn("acme", 2), full("acme/alice", 4, 4)}, nil, "acme/alice", 1, 0, "acme/alice holds 4 of its 4; 2 keys go before acme"},
		{
			"a wide first waiter of the parent", []engine.KeyState{full("acme", 19, 20), turn("acme/bob", 0), turn("acme/alice", 1)},
			[]engine.Waiter{waiter("acme/bob", 2), waiter("acme/alice", 1)}, "acme/alice", 1, 0,
			"1 key of acme goes before acme/alice; acme holds 19 of its 20, and its first waiter wants 2",
		},
		{"own callers", []engine.KeyState{turn("acme", 1), turn("acme/", 2)}, nil, "acme", 1, 0, "2 keys of acme go before the caller of acme itself; 1 key goes before acme"},
		{
			"own callers behind a wide one", []engine.KeyState{turn("acme", 0), turn("acme/alice", 0), turn("acme/", 0)},
			[]engine.Waiter{waiter("acme/alice", 1), waiter("acme", 9), waiter("acme", 1)}, "acme", 1, 1,
			"behind 1 other of acme itself; the first wants 9, 8 of 30 free",
		},
		{"own callers next", []engine.KeyState{turn("acme", 0), turn("acme/", 0)}, nil, "acme", 9, 0, "the caller of acme itself is next; wants 9, 8 of 30 free"},
		{"above the inner cap", []engine.KeyState{turn("acme", 0), full("acme/alice", 4, 4)}, nil, "acme/alice", 5, 0, "never: weight 5 is above the 4 that acme/alice may hold"},
		{
			"above the outer cap, the least", []engine.KeyState{state("acme", engine.KeyState{Cap: 3}), state("acme/alice", engine.KeyState{Cap: 4})}, nil, "acme/alice", 5, 0,
			"never: weight 5 is above the 3 that acme may hold",
		},
		{"above the limit, the least", []engine.KeyState{state("acme", engine.KeyState{Cap: 40})}, nil, "acme/alice", 41, 0, "never: weight 41 is above the limit 30"},
		{
			"three levels", []engine.KeyState{full("acme", 20, 20), turn("acme/alice", 1), full("acme/alice/gpt", 2, 2)}, nil, "acme/alice/gpt", 1, 1,
			"behind 1 other of acme/alice/gpt; acme/alice/gpt holds 2 of its 2; 1 key of acme goes before acme/alice; acme holds 20 of its 20",
		},
		{"own callers of the second of three levels", []engine.KeyState{turn("acme", 0), full("acme/alice", 4, 4), turn("acme/alice/", 0)}, nil, "acme/alice", 1, 0, "acme/alice holds 4 of its 4"},
		{"a percent sign in a name", []engine.KeyState{full("a%2Fb", 1, 1)}, nil, "a%2Fb", 1, 0, "a%252Fb holds 1 of its 1"},
	} {
		st := engine.State{Limit: 30, Used: 22, Keys: c.keys, Waiters: c.waiters}
		if got := view.Why(st, nested(c.key), "", c.weight, c.before); got != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}

// The reason names the pool that lacks room, or the waiter that keeps it free.
func TestWhyOfPools(t *testing.T) {
	waiter := func(key string, takes engine.Pools, weight int) engine.Waiter {
		return engine.Waiter{Key: nested(key), Takes: takes, Weight: weight}
	}
	state := func(key string, held, cap, before int) engine.KeyState {
		return engine.KeyState{Key: nested(key), Held: held, Cap: cap, Share: engine.DefaultShare, Waiting: 1, Full: cap > 0 && held >= cap, InTurn: cap == 0 || held < cap, Before: before}
	}
	for _, c := range []struct {
		name           string
		used           [2]int // of 4 db, and of 8 gpu
		keys           []engine.KeyState
		waiters        []engine.Waiter
		key            string
		takes          engine.Pools
		weight, before int
		want           string
	}{
		{name: "free", used: [2]int{4, 7}, takes: "gpu=1", want: "served now"},
		{name: "nothing left", used: [2]int{0, 8}, takes: "gpu=1", want: "1 of gpu wanted, 0 of 8 free"},
		{name: "made smaller", used: [2]int{5, 9}, takes: "db=1,gpu=1", want: "1 of db wanted, 0 of 4 free; 1 of gpu wanted, 0 of 8 free"},
		{name: "in line", used: [2]int{0, 8}, waiters: []engine.Waiter{waiter("", "gpu=1", 1), waiter("", "gpu=2", 1)}, takes: "gpu=1", before: 2, want: "behind 2 others for gpu; 1 of gpu wanted, 0 of 8 free"},
		{name: "behind a wide one", used: [2]int{0, 6}, waiters: []engine.Waiter{waiter("", "gpu=4", 1)}, takes: "gpu=1", before: 1, want: "behind 1 other for gpu; gpu: 2 free, reserved for a caller, who wants 4"},
		{name: "the wide one itself", used: [2]int{0, 6}, waiters: []engine.Waiter{waiter("", "gpu=4", 1)}, takes: "gpu=4", want: "4 of gpu wanted, 2 of 8 free"},
		{
			name: "reserved for another key", used: [2]int{0, 6}, keys: []engine.KeyState{state("acme", 0, 0, 0), state("acme/bob", 0, 0, 0)},
			waiters: []engine.Waiter{waiter("acme/bob", "gpu=4", 1)}, key: "zeta", takes: "db=1,gpu=1", want: "gpu: 2 free, reserved for acme/bob, who wants 4",
		},
		{
			name: "of no use to one at its cap", used: [2]int{0, 6}, keys: []engine.KeyState{state("acme", 2, 2, 0), state("acme/bob", 2, 0, 0)},
			waiters: []engine.Waiter{waiter("acme/bob", "gpu=4", 1)}, key: "zeta", takes: "db=1,gpu=1", want: "served now",
		},
		{
			name: "of no use to one that holds more", used: [2]int{0, 6}, keys: []engine.KeyState{state("acme", 3, 0, 0)},
			waiters: []engine.Waiter{waiter("acme", "gpu=4", 1)}, key: "zeta", takes: "db=1,gpu=1", want: "served now",
		},
		{
			name: "keys before, of the same pools", used: [2]int{0, 8}, keys: []engine.KeyState{state("acme", 0, 0, 0), state("zeta", 0, 0, 9)},
			waiters: []engine.Waiter{waiter("beta", "db=1", 1), waiter("acme", "gpu=1", 1), waiter("acme", "gpu=1", 1), waiter("zeta", "gpu=2", 1)}, key: "zeta", takes: "gpu=2",
			want: "1 key goes before zeta; 2 of gpu wanted, 0 of 8 free",
		},
		{name: "weight reserved", used: [2]int{4, 0}, waiters: []engine.Waiter{waiter("", "db=1,gpu=2", 2)}, weight: 2, want: "3 of 9 free; the rest is reserved for a caller, who wants 2, and 1 of db and 2 of gpu"},
		{name: "weight lacking", waiters: []engine.Waiter{waiter("", "", 5)}, takes: "gpu=1", want: "3 of 9 free; the rest is reserved for a caller, who wants 5"},
		{name: "cap, then pool", used: [2]int{4, 0}, keys: []engine.KeyState{state("acme", 2, 2, 0)}, key: "acme", takes: "db=1", want: "acme holds 2 of its 2; 1 of db wanted, 0 of 4 free"},
		{name: "above the pool", takes: "db=1,gpu=9", want: "never: 9 of gpu are above the 8 that there are"},
		{name: "no pool", takes: "gpu=1,gpus=1", want: "never: there is no pool gpus"},
		{name: "ended", takes: "old=1", want: "never: there is no pool old"},
	} {
		st := engine.State{Limit: 9, Used: 6, Keys: c.keys, Waiters: c.waiters, Pools: []engine.PoolState{{Pool: "db", Limit: 4, Used: c.used[0]}, {Pool: "gpu", Limit: 8, Used: c.used[1]}, {Pool: "old", Used: 1}}}
		if got := view.Why(st, nested(c.key), c.takes, max(c.weight, 1), c.before); got != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
		st.Paused = true
		if got := view.Why(st, nested(c.key), c.takes, max(c.weight, 1), c.before); got != "paused by an operator" && !strings.HasPrefix(got, "never: ") {
			t.Errorf("%s, paused: %q", c.name, got)
		}
	}
}

// Positions count those who take the same pools, whatever the amounts. A semaphore with pools shows no keys if it has none.
func TestPlacesOfPools(t *testing.T) {
	st := engine.State{
		Limit: 9, Pools: []engine.PoolState{{Pool: "db", Limit: 4}, {Pool: "gpu", Limit: 8}}, Keys: []engine.KeyState{{Share: 100, Waiting: 4, InTurn: true}},
		Waiters: []engine.Waiter{{Takes: "db=4", Weight: 1}, {Takes: "gpu=1", Weight: 1}, {Takes: "db=1", Weight: 1}, {Weight: 1}},
	}
	v := view.Of("x", st)
	for i, want := range []int{1, 1, 2, 1} {
		if v.Waiters[i].Position != want || view.Before(st, i) != want-1 {
			t.Errorf("%+v: %d, want %d", v.Waiters[i], view.Before(st, i)+1, want)
		}
	}
	if v.Keys == nil || len(v.Keys) != 0 || view.Keyed(st) {
		t.Errorf("%+v", v.Keys)
	}
	st.Keys = append(st.Keys, engine.KeyState{Key: "acme", Share: 100, Held: 1})
	if keys := view.KeysOf(st); len(keys) != 2 || keys[0].Why != "served now" {
		t.Errorf("%+v", keys)
	}
}

// The row of a key says what those below it wait for: the first of them as it is, or that all are full.
func TestWhyOfAKeyWithOthersBelow(t *testing.T) {
	keys := []engine.KeyState{
		{Key: "beta", Waiting: 1, Share: 100, InTurn: true}, {Key: nested("beta/"), Waiting: 1, Share: 100, InTurn: true},
		{Key: nested("acme/alice"), Held: 4, Cap: 4, Waiting: 1, Share: 100, Full: true}, {Key: "acme", Held: 4, Waiting: 1, Share: 100},
		{Key: nested("gamma/carol"), Held: 1, Cap: 1, Waiting: 1, Share: 100, Full: true}, {Key: "gamma", Held: 3, Cap: 2, Waiting: 1, Share: 100},
	}
	st := engine.State{Limit: 9, Used: 9, Keys: keys, Waiters: []engine.Waiter{{Key: "beta", Weight: 1}, {Key: nested("acme/alice"), Weight: 1, Behind: 2}, {Key: nested("gamma/carol"), Weight: 1}}}
	want := map[engine.Key]string{
		"beta": "beta is next; 0 of 9 free", nested("beta/"): "the caller of beta itself is next; 0 of 9 free",
		nested("acme/alice"): "acme/alice holds 4 of its 4", "acme": "all that wait below it are at their caps",
		nested("gamma/carol"): "gamma/carol holds 1 of its 1; gamma holds 3 of its 2", "gamma": "all that wait below it are at their caps; gamma holds 3 of its 2",
	}
	for _, k := range view.KeysOf(st) {
		if k.Why != want[k.Key] {
			t.Errorf("%v: %q, want %q", k.Key, k.Why, want[k.Key])
		}
		if callers := map[bool]int{true: 3, false: 1}[strings.HasPrefix(string(k.Key), "acme")]; k.Waiting != callers {
			t.Errorf("%v: %d callers wait, want %d", k.Key, k.Waiting, callers)
		}
	}
	st.Paused = true
	for _, k := range view.KeysOf(st) {
		if k.Why != "paused by an operator" {
			t.Errorf("%v: %q", k.Key, k.Why)
		}
	}
}
