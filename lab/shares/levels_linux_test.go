package shares

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"sema"
	"sema/engines/pgengine"
	"sema/internal/fixture/expect"
	"sema/internal/fixture/history"
	"sema/internal/fixture/local"
	"sema/internal/fixture/redistest"
)

// organisations is a world by chance: organisations, users of them, and models that those call, with caps
// at each level. Some of it is asked for by the organisation itself.
func organisations(seed uint64) World {
	r := rand.New(rand.NewPCG(seed, 1))
	w := World{Name: "levels", Order: Shares, Limit: 6 + r.IntN(6), Processes: 4, Seed: seed, Rounds: 30, Kill: true, Lease: 3 * time.Second}
	w.Caps = sema.Caps{2 + r.IntN(w.Limit), 1 + r.IntN(4), 1 + r.IntN(3)}
	most := min(w.Caps[0], w.Caps[1], w.Caps[2], 3)
	for org := range 3 {
		for _, below := range []string{"", "/u", "/v", "/u/m", "/u/n", "/v/m"} {
			t := Tenant{Key: fmt.Sprint("o", org, below), Callers: 1 + r.IntN(3), Weight: 1 + r.IntN(most), Hold: time.Duration(1+r.IntN(10)) * time.Millisecond}
			if r.IntN(4) == 0 {
				t.Cap, t.Share = 1+r.IntN(w.Limit), 20+r.IntN(500)
				t.Weight = min(t.Weight, t.Cap)
			}
			w.Tenants = append(w.Tenants, t)
		}
	}
	return w
}

// Nobody holds more than the cap of its organisation, of its user, and of its model: real processes
// write down what they hold, and package history, which knows nothing of the engine, adds it up. One
// of the processes is killed while it holds, and then nothing of it is left at any level.
func TestNoLevelHoldsMoreThanItsCap(t *testing.T) {
	for _, ground := range []struct {
		name string
		url  func(t *testing.T) string
	}{
		{"redis", func(t *testing.T) string { return redistest.Start(t).URL() }},
		{"files", func(t *testing.T) string { return "file://" + t.TempDir() }},
		{"postgres", postgres},
	} {
		t.Run(ground.name, func(t *testing.T) {
			url := ground.url(t)
			for seed := range uint64(*worlds) {
				w := organisations(seed)
				w.Name = fmt.Sprint(w.Name, seed)
				r, err := Play(t.Context(), url, w)
				expect.OK(t, err)
				for _, b := range history.Judge(r) {
					if b.Promise == history.PromiseLimit {
						t.Errorf("world %d: %+v", seed, b)
					}
				}
				if len(r.Holdings(0)) == 0 {
					t.Error("nobody held anything")
				}
				expect.Until(t, "the killed process's permits are back", func() bool {
					st, err := w.State(expect.Within(t), url)
					expect.OK(t, err)
					for _, k := range st.Keys {
						if k.Held != 0 && len(st.Holders) == 0 {
							t.Fatalf("key %v holds %d, and nobody has a permit", k.Key, k.Held)
						}
					}
					return st.Used == 0 && len(st.Holders) == 0
				})
			}
		})
	}
}

// Keys for each user, without the organisations, break the caps, and the judge finds it.
func TestTheJudgeFindsLevelsThatHoldTooMuch(t *testing.T) {
	w := organisations(0)
	w.Order, w.Kill, w.Caps = Flat, false, sema.Caps{2, 1, 1}
	r, err := Play(t.Context(), redistest.Start(t).URL(), w)
	expect.OK(t, err)
	if !slices.ContainsFunc(history.Judge(r), func(b history.Breach) bool { return b.Promise == history.PromiseLimit }) {
		t.Error("more than the caps was held, and nothing found")
	}
}

// postgres starts a server, and returns its URL.
func postgres(t *testing.T) string {
	server, err := local.Postgres(t.Context())
	expect.OK(t, err)
	t.Cleanup(server.Stop)
	url := server.Address
	pool, err := pgxpool.New(context.Background(), url)
	expect.OK(t, err)
	defer pool.Close()
	e, err := pgengine.New(pool, nil)
	expect.OK(t, err)
	defer func() { expect.OK(t, e.Close()) }()
	expect.OK(t, e.Migrate(expect.Within(t)))
	return url
}
