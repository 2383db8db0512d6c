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
	for i, key := range keys {
		list = append(list, engine.Waiter{ID: fmt.Sprintf("o-%d-1", i), Key: nested(key), Weight: 1})
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
		return engine.State{Limit: 10, Used: used, Keys: []engine.KeyState{k}, Waiters: line(before...)}
	}
	for _, c := range []struct {
		name   string
		st     engine.State
		weight int
		want   string
		key    engine.Key
	}{
		{"free", engine.State{Limit: 3, Used: 1}, 2, "served now", ""},
		{"too heavy", engine.State{Limit: 3, Paused: true}, 4, "never: 4 is above the limit 3", ""},
		{"paused", engine.State{Limit: 3, Used: 1, Paused: true, Waiters: queue(1)}, 1, "paused by an operator", ""},
		{"paused, and full", engine.State{Limit: 3, Used: 2, Paused: true, Waiters: queue(1)}, 1, "paused by an operator; behind 1 other", ""},
		{"heavy head", engine.State{Limit: 3, Used: 1, Waiters: queue(3)}, 1, "behind 1 other", ""},
		{"behind", engine.State{Limit: 3, Used: 3, Waiters: queue(1, 1)}, 1, "behind 2 others; 3 of 3 held", ""},
		{"about to be served", engine.State{Limit: 3, Used: 1, Waiters: queue(1)}, 1, "served now", ""},
		{"lowered", engine.State{Limit: 2, Used: 3}, 1, "3 of 2 held", ""},
		{"wants more", engine.State{Limit: 3, Used: 2}, 2, "2 of 3 held, 2 wanted", ""},
		{"full", engine.State{Limit: 1, Used: 1}, 1, "1 of 1 held", ""},
		{"above the cap", acme(5, 2, 0), 3, "never: 3 is above the limit 2 of acme", "acme"},
		{"full", acme(5, 2, 2), 1, "acme holds 2 of its 2", "acme"},
		{"behind in a full key", acme(5, 2, 2, "acme", "acme", "acme"), 1, "behind 3 others of acme; acme holds 2 of its 2", "acme"},
		{"keys before", acme(10, 0, 0, "a", "b", "b/c", "b"), 1, "keys before acme: 2; 10 of 10 held", "acme"},
		{"a key before those without", acme(10, 0, 0, "acme"), 1, "keys before (none): 1; 10 of 10 held", ""},
		{"the next key", acme(7, 0, 0), 10, "7 of 10 held, 10 wanted", "acme"},
	} {
		if got := view.LookAt(c.st).Why(engine.Waiter{Key: c.key, Weight: c.weight}); got != c.want {
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
		name    string
		keys    []engine.KeyState
		waiters []engine.Waiter
		key     string
		weight  int
		want    string
	}{
		{"nothing but the limit", []engine.KeyState{turn("acme"), turn("acme/alice")}, line("beta"), "acme/alice", 1, "keys before acme: 1"},
		{"next", []engine.KeyState{turn("acme"), turn("acme/alice")}, nil, "acme/alice", 9, ""},
		{"leaf full", []engine.KeyState{turn("acme"), full("acme/alice", 4, 4)}, nil, "acme/alice", 1, "acme/alice holds 4 of its 4"},
		{"both full, and only the leaf is the engine's reason", []engine.KeyState{state("acme", engine.KeyState{Held: 20, Cap: 20, Waiting: 1}), full("acme/alice", 4, 4)}, nil, "acme/alice", 1, "acme/alice holds 4 of its 4; acme holds 20 of its 20"},
		{"parent full", []engine.KeyState{full("acme", 20, 20), turn("acme/alice")}, nil, "acme/alice", 1, "acme holds 20 of its 20"},
		{"behind at a full parent", []engine.KeyState{full("acme", 20, 20), turn("acme/alice")}, line("acme/alice", "acme/alice"), "acme/alice", 1, "behind 2 others of acme/alice; acme holds 20 of its 20"},
		{"keys before, at one level", []engine.KeyState{turn("acme"), turn("acme/alice")}, line("acme/a", "acme/b", "acme"), "acme/alice", 1, "keys before acme/alice: 3"},
		{"keys before, at both", []engine.KeyState{turn("acme"), turn("acme/alice")}, line("a", "b", "acme/a"), "acme/alice", 1, "keys before acme/alice: 1; keys before acme: 2"},
		{"full below, keys before above", []engine.KeyState{turn("acme"), full("acme/alice", 4, 4)}, line("a", "b"), "acme/alice", 1, "keys before acme: 2; acme/alice holds 4 of its 4"},
		{"a wide waiter costs its key more", []engine.KeyState{full("acme", 19, 20), turn("acme/bob"), turn("acme/alice")}, wide(2, line("acme/bob")), "acme/alice", 1, ""},
		{"own callers", []engine.KeyState{turn("acme"), turn("acme/")}, line("acme/a", "acme/b", "a"), "acme", 1, "keys before acme itself: 2; keys before acme: 1"},
		{"own callers behind a wide one", []engine.KeyState{turn("acme"), turn("acme/alice"), turn("acme/")}, wide(9, line("acme", "acme/alice")), "acme", 1, "behind 1 other of acme; keys before acme itself: 1"},
		{"own callers next", []engine.KeyState{turn("acme"), turn("acme/")}, nil, "acme", 9, ""},
		{"above the inner cap", []engine.KeyState{turn("acme"), full("acme/alice", 4, 4)}, nil, "acme/alice", 5, "never: 5 is above the limit 4 of acme/alice"},
		{
			"above all caps, and the limit", []engine.KeyState{state("acme", engine.KeyState{Cap: 29}), state("acme/alice", engine.KeyState{Cap: 4})}, nil, "acme/alice", 41,
			"never: 41 is above the limit 4 of acme/alice; 41 is above the limit 29 of acme; 41 is above the limit 30",
		},
		{
			"three levels", []engine.KeyState{full("acme", 20, 20), turn("acme/alice"), full("acme/alice/gpt", 2, 2)}, line("acme/bob", "acme/alice/gpt"), "acme/alice/gpt", 1,
			"behind 1 other of acme/alice/gpt; keys before acme/alice: 1; acme/alice/gpt holds 2 of its 2; acme holds 20 of its 20",
		},
		{"own callers of the second of three levels", []engine.KeyState{turn("acme"), full("acme/alice", 4, 4), turn("acme/alice/")}, nil, "acme/alice", 1, "acme/alice holds 4 of its 4"},
		{"a percent sign in a name", []engine.KeyState{full("a%2Fb", 1, 1)}, nil, "a%2Fb", 1, "a%252Fb holds 1 of its 1"},
	} {
		st := engine.State{Limit: 30, Used: 30, Keys: c.keys, Waiters: c.waiters}
		want := c.want
		if !strings.HasPrefix(want, "never") {
			want = strings.TrimPrefix(want+"; 30 of 30 held", "; ") + map[bool]string{true: fmt.Sprintf(", %d wanted", c.weight)}[c.weight > 1]
		}
		if got := view.LookAt(st).Why(engine.Waiter{Key: nested(c.key), Weight: c.weight}); got != want {
			t.Errorf("%s: %q, want %q", c.name, got, want)
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
		name    string
		used    [2]int // of 4 db, and of 8 gpu
		keys    []engine.KeyState
		holders []engine.Holder
		waiters []engine.Waiter
		key     string
		takes   engine.Pools
		weight  int
		want    string
	}{
		{name: "free", used: [2]int{4, 7}, takes: "gpu=1", want: "served now"},
		{name: "nothing left", used: [2]int{0, 8}, takes: "gpu=1", want: "8 of 8 of gpu held"},
		{name: "made smaller", used: [2]int{5, 9}, takes: "db=1,gpu=1", want: "5 of 4 of db held; 9 of 8 of gpu held"},
		{name: "in line", used: [2]int{0, 8}, waiters: []engine.Waiter{waiter("", "gpu=1", 1), waiter("", "gpu=2", 1)}, takes: "gpu=1", want: "behind 2 others; 8 of 8 of gpu held"},
		{name: "behind a wide one", used: [2]int{0, 6}, waiters: []engine.Waiter{waiter("", "gpu=4", 1)}, takes: "gpu=1", want: "behind 1 other"},
		{name: "the wide one itself", used: [2]int{0, 6}, takes: "gpu=4", want: "6 of 8 of gpu held, 4 wanted"},
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
			waiters: []engine.Waiter{waiter("beta", "db=1", 1), waiter("acme", "gpu=1", 1), waiter("acme", "gpu=1", 1)}, key: "zeta", takes: "gpu=2",
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
		if got := view.LookAt(st).Why(engine.Waiter{Key: nested(c.key), Takes: c.takes, Weight: max(c.weight, 1)}); got != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
		st.Paused = true
		if got := view.LookAt(st).Why(engine.Waiter{Key: nested(c.key), Takes: c.takes, Weight: max(c.weight, 1)}); !strings.HasPrefix(got, "paused by an operator") && !strings.HasPrefix(got, "never: ") {
			t.Errorf("%s, paused: %q", c.name, got)
		}
	}
}

// Positions count those who take the same pools, whatever the amounts. A semaphore with pools shows no keys if it has none.
func TestPlacesOfPools(t *testing.T) {
	st := engine.State{
		Limit: 9, Pools: []engine.PoolState{{Pool: "db", Limit: 4}, {Pool: "gpu", Limit: 8}}, Keys: []engine.KeyState{{Share: 100, Waiting: 4, InTurn: true}},
		Waiters: []engine.Waiter{{ID: "o-1-1", Takes: "db=4", Weight: 1}, {ID: "o-2-1", Takes: "gpu=1", Weight: 1}, {ID: "o-3-1", Takes: "db=1", Weight: 1}, {ID: "o-4-1", Weight: 1}},
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
	if keys := view.Of("x", st).Keys; len(keys) != 2 || keys[0].Why != "served now" {
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
	st := engine.State{Limit: 9, Used: 9, Keys: keys, Waiters: []engine.Waiter{{ID: "o-1-1", Key: "beta", Weight: 1}, {ID: "o-2-1", Key: nested("acme/alice"), Weight: 1, Behind: 2}, {ID: "o-3-1", Key: nested("gamma/carol"), Weight: 1}}}
	want := map[engine.Key]string{
		"beta": "9 of 9 held", nested("beta/"): "9 of 9 held",
		nested("acme/alice"): "keys before acme: 1; acme/alice holds 4 of its 4; 9 of 9 held", "acme": "keys before acme: 1; acme/alice holds 4 of its 4; 9 of 9 held",
		nested("gamma/carol"): "keys before gamma: 1; gamma/carol holds 1 of its 1; gamma holds 3 of its 2; 9 of 9 held", "gamma": "keys before gamma: 1; gamma/carol holds 1 of its 1; gamma holds 3 of its 2; 9 of 9 held",
	}
	for _, k := range view.Of("x", st).Keys {
		if k.Why != want[k.Key] {
			t.Errorf("%v: %q, want %q", k.Key, k.Why, want[k.Key])
		}
		if callers := map[bool]int{true: 3, false: 1}[strings.HasPrefix(string(k.Key), "acme")]; k.Waiting != callers {
			t.Errorf("%v: %d callers wait, want %d", k.Key, k.Waiting, callers)
		}
	}
	st.Paused = true
	for _, k := range view.Of("x", st).Keys {
		if !strings.HasPrefix(k.Why, "paused by an operator; ") {
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
	id := engine.ID{Client: "c", Number: w.next, Weight: like.Weight, Slot: w.next%2 == 0}
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
		switch key, pool := b.Key, b.Pool; {
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
	paused := w.State(w.now).Paused
	w.step(protocol.Request{Kind: protocol.Pause})
	for _, o := range obstacles {
		w.relieve(t, of, o)
		paused = paused && !o.Pause
	}
	id, err := engine.ParseID(of.ID)
	if of.ID == "" {
		id, _ = w.ask(limits, of)
	} else {
		expect.OK(t, err)
	}
	if !paused {
		w.step(protocol.Request{Kind: protocol.Unpause})
	}
	return w.holds(id)
}

// TestReasonsAreRight relieves exactly what is named, and the caller is served; all of it but one, and it is not. Callers
// have come and gone before, with slots and without, of keys with caps and shares that changed meanwhile, in pauses too.
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
		for range 3 + draw.IntN(28) {
			switch st, n := w.State(w.now), draw.IntN(16); {
			case n < 2 && depth > 0:
				if k := caller().Key; k != "" {
					w.step(protocol.Request{Kind: protocol.SetKey, Target: protocol.Target{Key: k}, Cap: draw.IntN(5), Share: []int{50, 100, 300}[draw.IntN(3)]})
				}
			case n == 2:
				w.step(protocol.Request{Kind: []protocol.Kind{protocol.Pause, protocol.Unpause, protocol.Unpause}[draw.IntN(3)]})
			case n < 6:
				var ids []string
				for _, h := range st.Holders {
					ids = append(ids, h.ID)
				}
				for _, w := range st.Waiters {
					ids = append(ids, w.ID)
				}
				if len(ids) > 0 {
					id, err := engine.ParseID(ids[draw.IntN(len(ids))])
					expect.OK(t, err)
					w.step(protocol.Request{Kind: protocol.Release, ID: id})
				}
			default:
				w.ask(limits, caller())
			}
		}
		st := w.State(w.now)
		look := view.LookAt(st)
		judge := func(of engine.Waiter) {
			why, obstacles, bad := look.Why(of), look.Obstacles(of), ""
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
			i = (i*7 + int(seed)) % len(st.Waiters)
			judge(st.Waiters[i])
		}
		if st.Limit > 0 {
			judge(caller())
		}
	}
	if wrong > 0 || len(outcomes) < 4 {
		t.Errorf("%d reasons are wrong; by how many obstacles they name: %v", wrong, outcomes)
	}
}
