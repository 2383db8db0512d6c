package ledger

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"sema/engine"
)

// tenants is a random world of clients that ask for keys, with rules that change.
type tenants struct {
	t      *testing.T
	rng    *rand.Rand
	l      *Ledger
	now    int64
	calls  uint64
	names  []string
	number uint64
	live   []engine.ID          // what was asked for, and not released
	of     map[engine.ID]string // whose it is
	weight int                  // the largest

	allowed map[string]int         // the most that a key may hold: its cap, or what a smaller one found
	stands  map[string]*stood      // of keys in turn
	over    map[[2]string]*passing // how often one key was served before another, while that stood
}

// stood is since when a key stands in turn without any change but the time.
type stood struct{ level, weight, share int }

// passing is how often a key was served before one that stands, at the same level.
type passing struct {
	times int
	least int64 // the least of what it was served cost
}

func newTenants(t *testing.T, seed uint64) *tenants {
	rng := rand.New(rand.NewPCG(seed, 7))
	w := &tenants{
		t: t, rng: rng, l: &Ledger{Watched: true}, now: 1_800_000_000_000_000, of: map[engine.ID]string{}, weight: 1,
		allowed: map[string]int{}, stands: map[string]*stood{}, over: map[[2]string]*passing{},
	}
	for i := range 2 + rng.IntN(6) {
		w.names = append(w.names, fmt.Sprintf("k%d", i))
	}
	if rng.IntN(3) == 0 {
		w.names = append(w.names, "")
	}
	if rng.IntN(2) == 0 {
		w.weight = 3
	}
	return w
}

func (w *tenants) pick() string { return w.names[w.rng.IntN(len(w.names))] }

// request draws what somebody does.
func (w *tenants) request(limit, perKey int) engine.Request {
	switch n := w.rng.IntN(20); {
	case n < 2 && len(w.live) > 0: // again, and under another key, which changes nothing
		id, key := w.live[w.rng.IntN(len(w.live))], w.pick()
		if w.l.ownerOf(id) == nil {
			key = w.of[id]
		}
		return engine.Request{Kind: engine.Ask, ID: id, Key: key, Limit: limit, PerKey: perKey, Lease: time.Minute, Ticket: time.Minute, Wait: true, Again: true}
	case n < 11 || len(w.live) == 0:
		w.number++
		key := w.pick()
		id := engine.ID{Client: "c" + key, Number: w.number, Weight: 1 + w.rng.IntN(w.weight)}
		w.live = append(w.live, id)
		w.of[id] = key
		return engine.Request{
			Kind: engine.Ask, ID: id, Key: key, Limit: limit, PerKey: perKey, Lease: time.Minute, Ticket: time.Minute,
			Wait: w.rng.IntN(8) > 0, Waited: time.Duration(w.rng.IntN(3)) * time.Millisecond,
		}
	case n < 18:
		i := w.rng.IntN(len(w.live))
		id := w.live[i]
		w.live = slices.Delete(w.live, i, i+1)
		return engine.Request{Kind: engine.Release, ID: id}
	case n == 18:
		kind := engine.SetKey
		if w.rng.IntN(3) == 0 {
			kind = engine.UnsetKey
		}
		return engine.Request{Kind: kind, Key: w.pick(), Cap: w.rng.IntN(5), Share: []int{0, 50, 100, 300, 1000}[w.rng.IntN(5)]}
	default:
		return engine.Request{Kind: engine.SetLimit, Limit: 1 + w.rng.IntN(6), PerKey: w.rng.IntN(4) - 1}
	}
}

// step carries out requests, and looks at what that does.
func (w *tenants) step(requests ...engine.Request) {
	w.t.Helper()
	w.calls++
	w.now += w.rng.Int64N(1000)
	before := w.l.Save()
	reply := w.l.Step(w.now, "c", engine.Client{}, engine.Call{Number: w.calls, Requests: requests})
	news := w.l.Notifications()
	ask := reply.Notification.Ask
	grants := slices.Clone(reply.Notification.Grants)
	for _, n := range news {
		grants = append(grants, n.Grants...)
		ask = ask || n.Ask
	}
	asked := false
	for i, a := range reply.Answers {
		asked = asked || requests[i].Kind == engine.Ask
		if a.Status == engine.Granted {
			if _, had := w.had(before, requests[i].ID); had {
				continue
			}
			grants = append(grants, engine.Grant{ID: requests[i].ID, Token: a.Token})
			for name := range w.stands {
				if !requests[i].Wait && name != w.of[requests[i].ID] {
					w.t.Fatalf("one that does not wait passes %q", name)
				}
			}
		}
	}
	if ask && w.weight == 1 {
		w.t.Fatal("somebody is told to ask again")
	}
	slices.SortFunc(grants, func(a, b engine.Grant) int { return cmp.Compare(a.Token, b.Token) })
	if !asked && !ask {
		w.naive(before, requests[0], grants)
	}
	w.counts(grants)
	w.sums()
	w.conserves(ask)
}

// had is the permit of an id, as it was written.
func (w *tenants) had(s Snapshot, id engine.ID) (h Recorded, ok bool) {
	i := slices.IndexFunc(s.Holders, func(h Recorded) bool { return h.ID == id })
	if i < 0 {
		return h, false
	}
	return s.Holders[i], true
}

// sums looks at what keys hold, beside their caps.
func (w *tenants) sums() {
	w.t.Helper()
	if err := w.l.Audit(); err != nil {
		w.t.Fatal(err)
	}
	for id, h := range w.l.holders {
		if h.key.name != w.of[id] {
			w.t.Fatalf("%v was asked for by %q, and is %q's", id, w.of[id], h.key.name)
		}
	}
	for _, name := range w.names {
		held, cap := w.l.KeyLoad(name)
		most := max(cap, min(w.allowed[name], held))
		if held > most {
			w.t.Fatalf("key %q holds %d, allowed %d", name, held, most)
		}
		w.allowed[name] = most
	}
}

// conserves looks whether free weight lies beside a key in turn.
func (w *tenants) conserves(told bool) {
	w.t.Helper()
	if turn := w.l.keys.turn; len(turn) > 0 && !told && turn[0].queue[0].id.Weight <= w.l.limit-w.l.used {
		w.t.Fatalf("%q waits for %d, and %d of %d is held", turn[0].name, turn[0].queue[0].id.Weight, w.l.used, w.l.limit)
	}
}

// counts counts how often keys are served before others that stand.
func (w *tenants) counts(grants []engine.Grant) {
	w.t.Helper()
	// What stood before the step and stands as before was passed by each grant.
	ks := &w.l.keys
	now := map[string]*stood{}
	for _, k := range ks.turn {
		now[k.name] = &stood{k.level, k.queue[0].id.Weight, k.shares()}
	}
	servedNow := map[string]bool{}
	for _, g := range grants {
		servedNow[w.of[g.ID]] = true
	}
	for name, s := range w.stands {
		if n := now[name]; n == nil || *n != *s || servedNow[name] {
			delete(w.stands, name)
			for other := range w.over {
				if other[0] == name {
					delete(w.over, other)
				}
			}
		}
	}
	levels := map[string]int{} // before the grants of this step
	for _, name := range w.names {
		if k := ks.all[name]; k != nil {
			levels[name] = k.held
		}
	}
	for _, g := range grants {
		levels[w.of[g.ID]] -= g.ID.Weight
	}
	for _, g := range grants {
		name := w.of[g.ID]
		k := ks.all[name]
		if k == nil {
			continue
		}
		level := levels[name] * 100 / k.shares()
		levels[name] += g.ID.Weight
		for waits, s := range w.stands {
			if waits == name || s.level != level {
				continue
			}
			pair := [2]string{waits, name}
			p := w.over[pair]
			if p == nil {
				p = &passing{least: k.cost(g.ID.Weight)}
				w.over[pair] = p
			}
			p.times++
			p.least = min(p.least, k.cost(g.ID.Weight))
			own := ks.all[waits].cost(s.weight)
			if bound := max(1, (own+p.least-1)/p.least); int64(p.times) > bound {
				w.t.Fatalf("%q was served %d times at level %d before %q, at most %d expected", name, p.times, level, waits, bound)
			}
		}
	}
	for name, s := range now {
		if w.stands[name] == nil {
			w.stands[name] = s
		}
	}
}

// naive works out anew, from what was written before a step, to whom its grants go.
func (w *tenants) naive(s Snapshot, r engine.Request, grants []engine.Grant) {
	w.t.Helper()
	type tenant struct {
		RecordedKey
		held  int
		queue []Recorded
	}
	keys := map[string]*tenant{}
	of := func(name string) *tenant {
		if keys[name] == nil {
			keys[name] = &tenant{RecordedKey: RecordedKey{Name: name}}
		}
		return keys[name]
	}
	used := 0
	for _, k := range s.Keys {
		of(k.Name).RecordedKey = k
	}
	for _, h := range s.Holders {
		if r.Kind != engine.Release || h.ID != r.ID {
			of(h.Key).held += h.ID.Weight
			used += h.ID.Weight
		}
	}
	for _, t := range s.Waiters {
		if r.Kind != engine.Release || t.ID != r.ID {
			of(t.Key).queue = append(of(t.Key).queue, t)
		}
	}
	switch r.Kind {
	case engine.SetLimit:
		s.Limit = r.Limit
		if r.PerKey != 0 {
			s.PerKey = max(0, r.PerKey)
		}
	case engine.SetKey:
		of(r.Key).Cap, of(r.Key).Share = r.Cap, r.Share
	case engine.UnsetKey:
		of(r.Key).Cap, of(r.Key).Share = 0, 0
	}
	for _, g := range grants {
		var best *tenant
		var order [3]int64
		for _, k := range keys {
			most := k.Cap
			if most == 0 && k.Name != "" {
				most = s.PerKey
			}
			if len(k.queue) == 0 || most > 0 && k.held+k.queue[0].ID.Weight > most {
				continue
			}
			share := cmp.Or(k.Share, 100)
			its := [3]int64{int64(k.held * 100 / share), k.Base + max(1, int64(k.queue[0].ID.Weight*1000/share)), k.Seq}
			if best == nil || slices.Compare(its[:], order[:]) < 0 {
				best, order = k, its
			}
		}
		if best == nil || best.queue[0].ID != g.ID || used+g.ID.Weight > s.Limit {
			w.t.Fatalf("%v of %q is granted beside %+v", g.ID, w.of[g.ID], best)
		}
		s.Seq++
		s.Time = max(s.Time, order[1])
		best.Base, best.Seq = s.Time, s.Seq
		best.held += g.ID.Weight
		best.queue = best.queue[1:]
		used += g.ID.Weight
	}
}

// What holds among keys: the caps, the sums, the order and its bound, and that no
// free weight lies beside a key in turn.
func TestShares(t *testing.T) {
	for seed := range uint64(400) {
		w := newTenants(t, seed)
		limit, perKey := 1+w.rng.IntN(6), w.rng.IntN(4)
		w.step(engine.Request{Kind: engine.SetLimit, Limit: limit, PerKey: max(1, perKey)})
		for range 300 {
			w.step(w.request(limit, perKey))
			if t.Failed() {
				t.Fatalf("seed %d", seed)
			}
		}
		for len(w.live) > 0 {
			w.step(engine.Request{Kind: engine.Release, ID: w.live[0]})
			w.live = w.live[1:]
		}
		for _, name := range w.names {
			w.step(engine.Request{Kind: engine.UnsetKey, Key: name})
		}
		if n := len(w.l.keys.all); n > 0 {
			t.Fatalf("seed %d: %d keys are left", seed, n)
		}
	}
}
