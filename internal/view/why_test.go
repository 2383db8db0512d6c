package view_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"sema/engine"
	"sema/internal/fixture/expect"
	"sema/internal/ledger"
	"sema/internal/protocol"
	"sema/internal/view"
)

// line is who waits, of these keys, each for a weight of 1.
func line(keys ...string) (list []engine.Waiter) {
	for _, key := range keys {
		list = append(list, engine.Waiter{ID: "o", Key: nested(key), Weight: 1})
	}
	return list
}

func TestWhy(t *testing.T) {
	queue := func(weights ...int) (list []engine.Waiter) {
		for _, w := range weights {
			list = append(list, engine.Waiter{ID: "o", Weight: w})
		}
		return list
	}
	acme := func(used, cap, held int, before ...string) engine.State {
		k := engine.KeyState{Key: "acme", Cap: cap, Held: held, Full: cap > 0 && held >= cap}
		return engine.State{Limit: 10, Used: used, Keys: []engine.KeyState{k}, Waiters: line(append(before, "acme")...)}
	}
	for _, c := range []struct {
		name           string
		st             engine.State
		weight, before int
		want           string
		key            engine.Key
	}{
		{"free", engine.State{Limit: 3, Used: 1}, 2, 0, "served now", ""},
		{"too heavy", engine.State{Limit: 3, Paused: true}, 4, 0, "never: 4 is above the limit 3", ""},
		{"paused", engine.State{Limit: 3, Paused: true, Waiters: queue(1)}, 1, 1, "paused by an operator", ""},
		{"heavy head", engine.State{Limit: 3, Used: 1, Waiters: queue(3)}, 1, 1, "behind 1 other", ""},
		{"behind", engine.State{Limit: 3, Used: 3, Waiters: queue(1, 1)}, 1, 2, "behind 2 others; 3 of 3 held", ""},
		{"about to be served", engine.State{Limit: 3, Used: 1, Waiters: queue(1)}, 1, 1, "behind 1 other", ""},
		{"lowered", engine.State{Limit: 2, Used: 3}, 1, 0, "3 of 2 held", ""},
		{"wants more", engine.State{Limit: 3, Used: 2}, 2, 0, "2 of 3 held, 2 wanted", ""},
		{"full", engine.State{Limit: 1, Used: 1}, 1, 0, "1 of 1 held", ""},
		{"above the cap", acme(5, 2, 0), 3, 0, "never: 3 is above the limit 2 of acme", "acme"},
		{"full", acme(5, 2, 2), 1, 0, "acme holds 2 of its 2", "acme"},
		{"behind in a full key", acme(5, 2, 2), 1, 3, "behind 3 others of acme; acme holds 2 of its 2", "acme"},
		{"keys before", acme(5, 0, 0, "a", "b", "b/c", "b"), 1, 0, "keys before acme: 2", "acme"},
		{"a key before those without", acme(5, 0, 0), 1, 0, "keys before (none): 1", ""},
		{"the next key", acme(7, 0, 0), 10, 0, "7 of 10 held, 10 wanted", "acme"},
	} {
		if got := view.LookAt(c.st).Why(engine.Waiter{Key: c.key, Weight: c.weight}, c.before); got != c.want {
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
	state := func(key string, of engine.KeyState) engine.KeyState {
		of.Key, of.Share = nested(key), engine.DefaultShare
		return of
	}
	full := func(key string, held, cap int) engine.KeyState {
		return state(key, engine.KeyState{Held: held, Cap: cap, Waiting: 1, Full: true})
	}
	turn := func(key string) engine.KeyState {
		return state(key, engine.KeyState{Cap: 20, Waiting: 1, InTurn: true})
	}
	wide := func(weight int, list []engine.Waiter) []engine.Waiter {
		list[0].Weight = weight
		return list
	}
	for _, c := range []struct {
		name           string
		keys           []engine.KeyState
		waiters        []engine.Waiter
		key            string
		weight, before int
		want           string
	}{
		{"nothing", []engine.KeyState{turn("acme"), turn("acme/alice")}, line("acme/alice", "beta"), "acme/alice", 1, 0, "served now"},
		{"next", []engine.KeyState{turn("acme"), turn("acme/alice")}, nil, "acme/alice", 9, 0, "22 of 30 held, 9 wanted"},
		{"leaf full", []engine.KeyState{turn("acme"), full("acme/alice", 4, 4)}, nil, "acme/alice", 1, 0, "acme/alice holds 4 of its 4"},
		{"both full, and only the leaf is the engine's reason", []engine.KeyState{state("acme", engine.KeyState{Held: 20, Cap: 20, Waiting: 1}), full("acme/alice", 4, 4)}, nil, "acme/alice", 1, 0, "acme/alice holds 4 of its 4; acme holds 20 of its 20"},
		{"parent full", []engine.KeyState{full("acme", 20, 20), turn("acme/alice")}, nil, "acme/alice", 1, 0, "acme holds 20 of its 20"},
		{"both full", []engine.KeyState{full("acme", 20, 20), full("acme/alice", 4, 4)}, nil, "acme/alice", 1, 0, "acme/alice holds 4 of its 4; acme holds 20 of its 20"},
		{"behind at a full parent", []engine.KeyState{full("acme", 20, 20), turn("acme/alice")}, nil, "acme/alice", 1, 2, "behind 2 others of acme/alice; acme holds 20 of its 20"},
		{"keys before, at one level", []engine.KeyState{turn("acme"), turn("acme/alice")}, line("acme/a", "acme/b", "acme", "acme/alice", "beta"), "acme/alice", 1, 0, "keys before acme/alice: 3"},
		{"keys before, at both", []engine.KeyState{turn("acme"), turn("acme/alice")}, line("a", "b", "acme/a", "acme/alice"), "acme/alice", 1, 0, "keys before acme/alice: 1; keys before acme: 2"},
		{"full below, keys before above", []engine.KeyState{turn("acme"), full("acme/alice", 4, 4)}, line("a", "b", "acme/bob", "acme/alice"), "acme/alice", 1, 0, "keys before acme: 2; acme/alice holds 4 of its 4"},
		{
			"a wide first waiter of the parent", []engine.KeyState{full("acme", 19, 20), turn("acme/bob"), turn("acme/alice")}, wide(2, line("acme/bob", "acme/alice")), "acme/alice", 1, 0,
			"keys before acme/alice: 1",
		},
		{"own callers", []engine.KeyState{turn("acme"), turn("acme/")}, line("a", "acme/a", "acme/b", "acme"), "acme", 1, 0, "keys before acme itself: 2; keys before acme: 1"},
		{"own callers behind a wide one", []engine.KeyState{turn("acme"), turn("acme/alice"), turn("acme/")}, wide(9, line("acme", "acme", "acme/alice")), "acme", 1, 1, "behind 1 other of acme"},
		{"own callers next", []engine.KeyState{turn("acme"), turn("acme/")}, nil, "acme", 9, 0, "22 of 30 held, 9 wanted"},
		{"above the inner cap", []engine.KeyState{turn("acme"), full("acme/alice", 4, 4)}, nil, "acme/alice", 5, 0, "never: 5 is above the limit 4 of acme/alice"},
		{
			"above all caps, and the limit", []engine.KeyState{state("acme", engine.KeyState{Cap: 40}), state("acme/alice", engine.KeyState{Cap: 4})}, nil, "acme/alice", 41, 0,
			"never: 41 is above the limit 4 of acme/alice; 41 is above the limit 40 of acme; 41 is above the limit 30",
		},
		{
			"three levels", []engine.KeyState{full("acme", 20, 20), turn("acme/alice"), full("acme/alice/gpt", 2, 2)}, line("acme/bob", "acme/alice/opus", "acme/alice/gpt", "acme/alice/gpt"), "acme/alice/gpt", 1, 1,
			"behind 1 other of acme/alice/gpt; keys before acme/alice: 1; acme/alice/gpt holds 2 of its 2; acme holds 20 of its 20",
		},
		{"own callers of the second of three levels", []engine.KeyState{turn("acme"), full("acme/alice", 4, 4), turn("acme/alice/")}, nil, "acme/alice", 1, 0, "acme/alice holds 4 of its 4"},
		{"a percent sign in a name", []engine.KeyState{full("a%2Fb", 1, 1)}, nil, "a%2Fb", 1, 0, "a%252Fb holds 1 of its 1"},
	} {
		st := engine.State{Limit: 30, Used: 22, Keys: c.keys, Waiters: c.waiters}
		if got := view.LookAt(st).Why(engine.Waiter{Key: nested(c.key), Weight: c.weight}, c.before); got != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}

// The reason names the pool that lacks room, or the waiter that keeps it free.
func TestWhyOfPools(t *testing.T) {
	waiter := func(key string, takes engine.Pools, weight int) engine.Waiter {
		return engine.Waiter{ID: "o", Key: nested(key), Takes: takes, Weight: weight}
	}
	state := func(key string, held, cap, before int) engine.KeyState {
		return engine.KeyState{Key: nested(key), Held: held, Cap: cap, Share: engine.DefaultShare, Waiting: 1, Full: cap > 0 && held >= cap, InTurn: cap == 0 || held < cap, Before: before}
	}
	for _, c := range []struct {
		name           string
		used           [2]int // of 4 db, and of 8 gpu
		keys           []engine.KeyState
		holders        []engine.Holder
		waiters        []engine.Waiter
		key            string
		takes          engine.Pools
		weight, before int
		want           string
	}{
		{name: "free", used: [2]int{4, 7}, takes: "gpu=1", want: "served now"},
		{name: "nothing left", used: [2]int{0, 8}, takes: "gpu=1", want: "8 of 8 of gpu held"},
		{name: "made smaller", used: [2]int{5, 9}, takes: "db=1,gpu=1", want: "5 of 4 of db held; 9 of 8 of gpu held"},
		{name: "in line", used: [2]int{0, 8}, waiters: []engine.Waiter{waiter("", "gpu=1", 1), waiter("", "gpu=2", 1)}, takes: "gpu=1", before: 2, want: "behind 2 others; 8 of 8 of gpu held"},
		{name: "behind a wide one", used: [2]int{0, 6}, waiters: []engine.Waiter{waiter("", "gpu=4", 1)}, takes: "gpu=1", before: 1, want: "behind 1 other"},
		{name: "the wide one itself", used: [2]int{0, 6}, waiters: []engine.Waiter{waiter("", "gpu=4", 1)}, takes: "gpu=4", want: "6 of 8 of gpu held, 4 wanted"},
		{
			name: "reserved for another key", used: [2]int{0, 6}, keys: []engine.KeyState{state("acme", 0, 0, 0), state("acme/bob", 0, 0, 0)},
			waiters: []engine.Waiter{waiter("acme/bob", "gpu=4", 1)}, key: "zeta", takes: "db=1,gpu=1", want: "6 of 8 of gpu held, 4 reserved for a caller of acme/bob",
		},
		{
			name: "of no use to one at its cap", used: [2]int{0, 6}, keys: []engine.KeyState{state("acme", 2, 2, 0), state("acme/bob", 2, 0, 0)},
			waiters: []engine.Waiter{waiter("acme/bob", "gpu=4", 1)}, key: "zeta", takes: "db=1,gpu=1", want: "served now",
		},
		{
			name: "of no use to one that holds more of it", used: [2]int{0, 6}, keys: []engine.KeyState{state("acme", 3, 0, 0)}, holders: []engine.Holder{{Key: "acme", Takes: "gpu=1", Weight: 3}},
			waiters: []engine.Waiter{waiter("acme", "gpu=4", 1)}, key: "zeta", takes: "db=1,gpu=1", want: "served now",
		},
		{
			name: "keys before, of the same pools", used: [2]int{0, 8}, keys: []engine.KeyState{state("acme", 0, 0, 0), state("zeta", 0, 0, 9)},
			waiters: []engine.Waiter{waiter("beta", "db=1", 1), waiter("acme", "gpu=1", 1), waiter("acme", "gpu=1", 1), waiter("zeta", "gpu=2", 1)}, key: "zeta", takes: "gpu=2",
			want: "8 of 8 of gpu held, 2 wanted, 1 reserved for a caller of acme",
		},
		{
			name: "both fit, though another key goes first", keys: []engine.KeyState{state("acme", 5, 0, 0), state("zeta", 1, 0, 0)}, holders: []engine.Holder{{Key: "acme", Weight: 5}, {Key: "zeta", Takes: "gpu=1", Weight: 1}},
			waiters: []engine.Waiter{waiter("acme", "gpu=1", 1)}, key: "zeta", takes: "gpu=1", want: "served now",
		},
		{
			name: "a key goes before nobody whose first of these pools is above its cap", keys: []engine.KeyState{state("acme", 1, 2, 0)}, holders: []engine.Holder{{Key: "acme", Weight: 1}, {Key: "zeta", Takes: "gpu=1", Weight: 1}},
			waiters: []engine.Waiter{waiter("acme", "", 1), waiter("acme", "gpu=2", 2)}, key: "zeta", takes: "gpu=1", want: "served now",
		},
		{name: "weight reserved", used: [2]int{4, 0}, waiters: []engine.Waiter{waiter("", "db=1,gpu=2", 2)}, weight: 2, want: "6 of 9 held, 2 wanted, 2 reserved for a caller"},
		{name: "weight lacking", waiters: []engine.Waiter{waiter("", "", 5)}, takes: "gpu=1", weight: 5, want: "6 of 9 held, 5 wanted, 5 reserved for a caller"},
		{name: "cap, then pool", used: [2]int{4, 0}, keys: []engine.KeyState{state("acme", 2, 2, 0)}, key: "acme", takes: "db=1", want: "acme holds 2 of its 2; 4 of 4 of db held"},
		{name: "above the pool", takes: "db=1,gpu=9", want: "never: 9 is above the limit 8 of gpu"},
		{name: "no pool", takes: "gpu=1,gpus=1", want: "never: there is no pool gpus"},
		{name: "ended", takes: "old=1", want: "never: there is no pool old"},
	} {
		st := engine.State{Limit: 9, Used: 6, Keys: c.keys, Holders: c.holders, Waiters: c.waiters, Pools: []engine.PoolState{{Pool: "db", Limit: 4, Used: c.used[0]}, {Pool: "gpu", Limit: 8, Used: c.used[1]}, {Pool: "old", Used: 1}}}
		if got := view.LookAt(st).Why(engine.Waiter{Key: nested(c.key), Takes: c.takes, Weight: max(c.weight, 1)}, c.before); got != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
		st.Paused = true
		if got := view.LookAt(st).Why(engine.Waiter{Key: nested(c.key), Takes: c.takes, Weight: max(c.weight, 1)}, c.before); got != "paused by an operator" && !strings.HasPrefix(got, "never: ") {
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
		if v.Waiters[i].Position != want || view.LookAt(st).Before[i] != want-1 {
			t.Errorf("%+v: %d, want %d", v.Waiters[i], view.LookAt(st).Before[i]+1, want)
		}
	}
	if v.Keys == nil || len(v.Keys) != 0 || view.Keyed(st) {
		t.Errorf("%+v", v.Keys)
	}
	st.Keys = append(st.Keys, engine.KeyState{Key: "acme", Share: 100, Held: 1})
	if keys := view.LookAt(st).Rows(); len(keys) != 2 || keys[0].Why != "served now" {
		t.Errorf("%+v", keys)
	}
}

// The row of a key says what the first of those below it waits for.
func TestWhyOfAKeyWithOthersBelow(t *testing.T) {
	keys := []engine.KeyState{
		{Key: "beta", Waiting: 1, Share: 100, InTurn: true}, {Key: nested("beta/"), Waiting: 1, Share: 100, InTurn: true},
		{Key: nested("acme/alice"), Held: 4, Cap: 4, Waiting: 1, Share: 100, Full: true}, {Key: "acme", Held: 4, Waiting: 1, Share: 100},
		{Key: nested("gamma/carol"), Held: 1, Cap: 1, Waiting: 1, Share: 100, Full: true}, {Key: "gamma", Held: 3, Cap: 2, Waiting: 1, Share: 100},
	}
	st := engine.State{Limit: 9, Used: 9, Keys: keys, Waiters: []engine.Waiter{{Key: "beta", Weight: 1}, {Key: nested("acme/alice"), Weight: 1, Behind: 2}, {Key: nested("gamma/carol"), Weight: 1}}}
	want := map[engine.Key]string{
		"beta": "9 of 9 held", nested("beta/"): "9 of 9 held",
		nested("acme/alice"): "acme/alice holds 4 of its 4; 9 of 9 held", "acme": "acme/alice holds 4 of its 4; 9 of 9 held",
		nested("gamma/carol"): "gamma/carol holds 1 of its 1; gamma holds 3 of its 2; 9 of 9 held", "gamma": "gamma/carol holds 1 of its 1; gamma holds 3 of its 2; 9 of 9 held",
	}
	for _, k := range view.LookAt(st).Rows() {
		if k.Why != want[k.Key] {
			t.Errorf("%v: %q, want %q", k.Key, k.Why, want[k.Key])
		}
		if callers := map[bool]int{true: 3, false: 1}[strings.HasPrefix(string(k.Key), "acme")]; k.Waiting != callers {
			t.Errorf("%v: %d callers wait, want %d", k.Key, k.Waiting, callers)
		}
	}
	st.Paused = true
	for _, k := range view.LookAt(st).Rows() {
		if k.Why != "paused by an operator" {
			t.Errorf("%v: %q", k.Key, k.Why)
		}
	}
}

// world is a semaphore of which reasons are judged. Its copies go on as it would.
type world struct {
	*ledger.Ledger
	now  int64
	next uint64
}

func (w *world) copy() *world { return &world{ledger.Load(w.Save()), w.now, w.next} }

// step carries out one request; 0 is none. It goes on until all that can be served is.
func (w *world) step(r protocol.Request) (is protocol.Status) {
	for again := true; again; again = w.Unfinished() {
		w.now += 10
		c := protocol.Call{}
		if r.Kind != 0 {
			c.Requests = []protocol.Request{r}
		}
		if reply := w.Step(w.now, "c", engine.Client{}, c); r.Kind != 0 {
			is = reply.Answers[0].Status
		}
		r = protocol.Request{}
	}
	return is
}

// ask has a further caller ask.
func (w *world) ask(limits protocol.Request, like engine.Waiter) (engine.ID, protocol.Status) {
	w.next++
	id := engine.ID{Client: "c", Number: w.next, Weight: like.Weight}
	limits.Kind, limits.ID, limits.Target, limits.Lease, limits.Ticket, limits.Wait = protocol.Ask, id, protocol.Target{Key: like.Key, Takes: like.Takes}, time.Hour, time.Hour, true
	return id, w.step(limits)
}

func (w *world) holds(id engine.ID) bool {
	return slices.ContainsFunc(w.State(w.now).Holders, func(h engine.Holder) bool { return h.ID == id.String() })
}

// relieve takes away what keeps a caller from being served, and nothing else.
func (w *world) relieve(t *testing.T, of engine.Waiter, obstacle view.Obstacle) {
	same, before := func(o engine.Waiter) bool { return o.Takes.Names() == of.Takes.Names() }, 0
	for _, o := range w.State(w.now).Waiters {
		if o.ID == of.ID {
			of.Weight, same = o.Weight, func(o engine.Waiter) bool { return o.Key != of.Key && o.Takes.Names() == of.Takes.Names() }
			continue
		}
		inQueue := obstacle.Behind > 0 && o.Key == of.Key && same(o)
		before += map[bool]int{true: 1}[inQueue]
		if inQueue || same(o) && slices.ContainsFunc(view.Path(o.Key), func(k engine.Key) bool { return slices.Contains(obstacle.Before, k) }) {
			id, err := engine.ParseID(o.ID)
			expect.OK(t, err)
			w.step(protocol.Request{Kind: protocol.Release, ID: id})
		}
	}
	if before != obstacle.Behind {
		t.Errorf("%q: %d are before it", obstacle.Text, before)
	}
	if b := obstacle.Bound; b != nil {
		most := b.Held + obstacle.Reserved + b.Wants
		switch key, pool := b.At(); {
		case pool != "":
			w.step(protocol.Request{Kind: protocol.SetLimit, Pools: engine.Pools(fmt.Sprintf("%s=%d", pool, most))})
		case b.Of != "":
			w.step(protocol.Request{Kind: protocol.SetKey, Target: protocol.Target{Key: key}, Cap: most})
		default:
			w.step(protocol.Request{Kind: protocol.SetLimit, Limit: most})
		}
	}
}

// served reports whether a caller gets a permit if exactly these obstacles are taken away.
func (w *world) served(t *testing.T, limits protocol.Request, of engine.Waiter, obstacles []view.Obstacle) bool {
	w = w.copy()
	w.step(protocol.Request{Kind: protocol.Pause})
	for _, o := range obstacles {
		w.relieve(t, of, o)
	}
	id, err := engine.ParseID(of.ID)
	if of.ID == "" {
		id, _ = w.ask(limits, of)
	} else {
		expect.OK(t, err)
	}
	w.step(protocol.Request{Kind: protocol.Unpause})
	return w.holds(id)
}

// TestReasonsAreRight relieves exactly what is named, and the caller is served; all of it but one, and it is not.
func TestReasonsAreRight(t *testing.T) {
	outcomes, wrong := map[int]int{}, 0
	for seed := range uint64(10000) {
		draw := rand.New(rand.NewPCG(seed, 1))
		w := &world{Ledger: &ledger.Ledger{Watched: true}, now: 1e9}
		depth := draw.IntN(engine.MaxDepth + 1)
		limits := protocol.Request{Limit: 3 + draw.IntN(5), Caps: engine.Caps{draw.IntN(5), draw.IntN(4), draw.IntN(3)}, Pools: engine.Pools([]string{"", "db=3,gpu=2", "db=2,gpu=4,tpu=1"}[draw.IntN(3)])}
		if draw.IntN(3) == 0 {
			limits.Caps = engine.Caps{}
		}
		caller := func() engine.Waiter {
			var names []string
			for range draw.IntN(depth + 1) {
				names = append(names, string(rune('a'+draw.IntN(3))))
			}
			amounts := map[string]int{}
			for pool := range limits.Pools.All() {
				if n := draw.IntN(4) - 1; n > 0 {
					amounts[pool] = n
				}
			}
			takes, err := engine.NewPools(amounts, 1)
			expect.OK(t, err)
			return engine.Waiter{Key: engine.Key(strings.Join(names, engine.KeySeparator)), Takes: takes, Weight: max(1, draw.IntN(4))}
		}
		for range 3 + draw.IntN(9) {
			st, next := w.State(w.now), w.copy()
			switch {
			case draw.IntN(8) == 0 && depth > 0:
				k := caller().Key
				if cap := draw.IntN(5); k != "" && !slices.ContainsFunc(st.Waiters, func(w engine.Waiter) bool { return w.Weight > cap && slices.Contains(view.Path(w.Key), k) }) {
					next.step(protocol.Request{Kind: protocol.SetKey, Target: protocol.Target{Key: k}, Cap: cap, Share: []int{50, 100, 300}[draw.IntN(3)]})
				}
			default:
				next.ask(limits, caller())
			}
			if next.Save().Time == 0 && !slices.ContainsFunc(next.Save().Keys, func(k ledger.RecordedKey) bool { return k.Time > 0 }) { // nobody was served in turn
				w = next
			}
		}
		st := w.State(w.now)
		look := view.LookAt(st)
		judge := func(of engine.Waiter, before int) {
			why, obstacles, bad := look.Why(of, before), look.Obstacles(of, before), ""
			switch {
			case strings.HasPrefix(why, "never: "):
				if _, is := w.copy().ask(limits, of); is != protocol.TooHeavy {
					bad = fmt.Sprint("it is not refused: ", is, limits)
				}
			case why == view.Served && of.ID != "":
				bad = "it waits"
			case !w.served(t, limits, of, obstacles):
				bad = "it waits without them"
			default:
				for i, o := range obstacles {
					if w.served(t, limits, of, slices.Delete(slices.Clone(obstacles), i, i+1)) {
						bad = "it is served in spite of: " + o.Text
					}
				}
			}
			outcomes[len(obstacles)]++
			if bad != "" {
				if wrong++; wrong < 8 {
					t.Errorf("world %d, %q with %q, weight %d (%s): %q: %s in\n%+v\n%+v\n%+v\n%+v", seed, of.Key, of.Takes, of.Weight, of.ID, why, bad, st.Keys, st.Pools, st.Holders, st.Waiters)
				}
			}
		}
		for i := range min(2, len(st.Waiters)) {
			i = (i + int(seed)) % len(st.Waiters)
			judge(st.Waiters[i], look.Before[i])
		}
		one, before := caller(), 0
		if st.Limit == 0 {
			continue
		}
		for _, o := range st.Waiters {
			if o.Key == one.Key && o.Takes.Names() == one.Takes.Names() {
				before++
			}
		}
		judge(one, before)
	}
	if wrong > 0 || len(outcomes) < 4 {
		t.Errorf("%d reasons are wrong; by how many obstacles they name: %v", wrong, outcomes)
	}
}
