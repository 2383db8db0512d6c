package main

import (
	"context"
	"errors"
	"os"
	"strings"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"sema"
	"sema/engine"
	"sema/engines/memengine"
	"sema/internal/fixture/expect"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestPrintsWhatTheDocsShow(t *testing.T) {
	out := &strings.Builder{}
	expect.OK(t, show(t.Context(), memengine.New(), out))
	docs, err := os.ReadFile("../../docs/shares.md")
	expect.OK(t, err)
	shown := "    go run ./examples/ci\n\n    " + strings.ReplaceAll(strings.TrimSpace(out.String()), "\n", "\n    ") + "\n"
	if !strings.Contains(string(docs), shown) {
		t.Errorf("docs/shares.md does not show\n%s", shown)
	}
}

// Many jobs of several runners never use more of a pool than there is, and all of them run.
func TestNoPoolIsUsedAboveWhatThereIs(t *testing.T) {
	e, there := memengine.New(), engine.Pools("db=3,gpu=2,licence=1")
	var mu sync.Mutex
	used, ran := map[string]int{}, 0
	count := func(needs engine.Pools, sign int) {
		mu.Lock()
		defer mu.Unlock()
		for pool, n := range needs.All() {
			if used[pool] += sign * n; used[pool] > there.Of(pool) {
				t.Errorf("%d of %s are used, of %d", used[pool], pool, there.Of(pool))
			}
		}
	}
	var all sync.WaitGroup
	for range 3 {
		r, err := newRunner(e, 100, there)
		expect.OK(t, err)
		defer func() { expect.OK(t, r.close()) }()
		for i := range 30 {
			j := job{name: "job", needs: []engine.Pools{"gpu=1", "db=2", "db=1,gpu=1,licence=1", "db=3,gpu=2"}[i%4]}
			j.run = func(context.Context) error {
				count(j.needs, 1)
				defer count(j.needs, -1)
				mu.Lock()
				defer mu.Unlock()
				ran++
				return nil
			}
			all.Go(func() {
				if err := r.run(t.Context(), j); err != nil {
					t.Error(err)
				}
			})
		}
	}
	all.Wait()
	if ran != 90 {
		t.Errorf("%d jobs ran, of 90", ran)
	}
}

func TestAJobThatCanNeverRunFails(t *testing.T) {
	r, err := newRunner(memengine.New(), 100, "gpu=2")
	expect.OK(t, err)
	defer func() { expect.OK(t, r.close()) }()
	run := func(context.Context) error { t.Error("it ran"); return nil }
	var heavy *sema.WeightError
	if err := r.run(t.Context(), job{needs: "gpu=3", run: run}); !errors.As(err, &heavy) || heavy.Pool != "gpu" {
		t.Error(err)
	}
	expect.Is(t, r.run(t.Context(), job{needs: "licence=1", run: run}), sema.ErrNoPool)
}
