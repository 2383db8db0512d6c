package shares

import (
	"cmp"
	"flag"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"go.uber.org/goleak"

	"sema/internal/fixture/child"
	"sema/internal/fixture/expect"
	"sema/internal/fixture/history"
	"sema/internal/fixture/redistest"
)

var worlds = flag.Int("worlds", 2, "in how many worlds, each by chance, overtakings are counted")

func TestMain(m *testing.M) {
	Role()
	child.Play()
	goleak.VerifyTestMain(m)
}

// drawn is a world by chance: tenants with a caller in each of some processes, which are
// judged, beside one or two with many callers.
func drawn(seed uint64) World {
	r := rand.New(rand.NewPCG(seed, 0))
	w := World{Name: "bound", Order: Shares, Limit: 2 + r.IntN(9), Processes: 4, Seed: seed, Rounds: 20}
	if r.IntN(2) == 0 {
		w.Caps[0] = 1 + r.IntN(w.Limit)
	}
	most := min(3, w.Limit)
	if w.Caps[0] > 0 {
		most = min(most, w.Caps[0])
	}
	one := func(t Tenant) Tenant {
		t.Hold = time.Duration(1+r.IntN(20)) * time.Millisecond
		if r.IntN(2) == 0 {
			t.Share = 20 + r.IntN(500)
		}
		if r.IntN(2) == 0 {
			t.Weight = 1 + r.IntN(most)
		}
		return t
	}
	w.Tenants = Light(3+r.IntN(8), Tenant{Callers: 1 + r.IntN(4), Idle: 5 * time.Millisecond})
	for i := range w.Tenants {
		w.Tenants[i] = one(w.Tenants[i])
	}
	for _, name := range []string{"heavy", "heavier"}[:1+r.IntN(2)] {
		w.Tenants = append(w.Tenants, one(Tenant{Key: name, Callers: 20 + r.IntN(40)}))
	}
	return w
}

// No key is passed by another one more often than the bound of docs/shares.md says,
// among real processes on a Redis: what all of them wrote down is judged by package
// history, which knows nothing of the engine.
func TestNoKeyIsPassedMoreOftenThanTheBound(t *testing.T) {
	var all history.Turns
	for seed := range uint64(*worlds) {
		w := drawn(seed)
		r, err := Play(t.Context(), redistest.Start(t).URL(), w)
		expect.OK(t, err)
		for _, b := range history.Judge(r) {
			t.Errorf("world %d: %+v", seed, b)
		}
		turns := r.Turns(0)
		t.Logf("world %d: limit %d, %d per key, %d tenants: %+v", seed, w.Limit, w.Caps[0], len(w.Tenants), turns)
		all.Waits += turns.Waits
		all.Passed += turns.Passed
	}
	if all.Waits == 0 || all.Passed == 0 {
		t.Errorf("nothing was judged: %+v", all)
	}
}

// First come, first served breaks the bound, and the judge finds it.
func TestTheJudgeFindsKeysThatPass(t *testing.T) {
	w := World{
		Name: "unbound", Order: Come, Limit: 2, Processes: 2, Rounds: 20,
		Tenants: append(Light(2, Tenant{Callers: 2, Hold: time.Millisecond}), Tenant{Key: "heavy", Callers: 20, Hold: 2 * time.Millisecond}),
	}
	r, err := Play(t.Context(), redistest.Start(t).URL(), w)
	expect.OK(t, err)
	turns := r.Turns(0)
	t.Logf("%+v", turns)
	if turns.Breaches == 0 || turns.Most < 3 {
		t.Errorf("a tenant with 20 callers did not pass others: %+v", turns)
	}
}

// Nobody uses more of a pool than there is, among real processes: what all of them wrote down is added up. Of
// an engine that has more of each pool, the sum finds it.
func TestNoPoolIsUsedAboveWhatThereIs(t *testing.T) {
	w := World{
		Name: "pools", Order: AtOnce, Limit: 20, Processes: 3, Rounds: 15, Pools: "db=4,gpu=3,licence=1",
		Tenants: []Tenant{
			{Key: "simulation", Callers: 3, Takes: "db=1,gpu=1,licence=1", Hold: 5 * time.Millisecond},
			{Key: "training", Callers: 4, Takes: "gpu=1", Hold: 3 * time.Millisecond},
			{Key: "test", Callers: 8, Takes: "db=1", Hold: time.Millisecond},
			{Key: "wide", Callers: 2, Takes: "db=4,gpu=2", Hold: 2 * time.Millisecond},
		},
	}
	r, err := Play(t.Context(), redistest.Start(t).URL(), w)
	expect.OK(t, err)
	for pool, n := range w.Pools.All() {
		if most := w.most(r, pool); most > n || most == 0 {
			t.Errorf("%d of %s were used at once, of %d", most, pool, n)
		}
	}
	if served, want := len(r.Holdings(0)), 17*w.Rounds; served != want {
		t.Errorf("%d jobs ran, want %d", served, want)
	}
	w.Pools = "db=100,gpu=100,licence=100"
	r, err = Play(t.Context(), redistest.Start(t).URL(), w)
	expect.OK(t, err)
	if most := w.most(r, "db"); most <= 4 {
		t.Errorf("%d of db were used at once, of 100, and 4 would have been enough", most)
	}
}

// most is how much of a pool was held at once.
func (w World) most(r *history.Round, pool string) (most int) {
	type change struct {
		at int64
		n  int
	}
	var all []change
	for _, h := range r.Holdings(0) {
		n := w.Tenants[slices.IndexFunc(w.Tenants, func(t Tenant) bool { return t.Key == h.Key })].Takes.Of(pool)
		all = append(all, change{h.From, n}, change{h.Until, -n})
	}
	slices.SortFunc(all, func(a, b change) int { return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.n, b.n)) })
	used := 0
	for _, c := range all {
		used += c.n
		most = max(most, used)
	}
	return most
}
