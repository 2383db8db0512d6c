package fileengine_test

import (
	"errors"
	"testing"
	"time"

	"sema"
	"sema/engine/enginetest"
	"sema/engine/fileengine"
)

func open(tb testing.TB) enginetest.Store {
	dir := tb.TempDir()
	return enginetest.Store{
		URL: "file://" + dir,
		Client: func(tb testing.TB) sema.Engine {
			e, err := fileengine.New(dir, nil)
			if err != nil {
				tb.Fatal(err)
			}
			tb.Cleanup(func() { _ = e.Close() })
			return e
		},
	}
}

func TestPromises(t *testing.T) { enginetest.Run(t, open) }

func BenchmarkEngine(b *testing.B) { enginetest.Benchmark(b, open) }

// A revoked permit ends at once, not with its next renewal.
func TestRevokeReachesTheHolder(t *testing.T) {
	store := open(t)
	a, err := sema.New(store.Client(t), "x", 1, &sema.Options{Lease: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	p, err := a.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	b, err := sema.New(store.Client(t), "x", 1, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := b.Revoke(t.Context(), p.ID()); err != nil {
		t.Fatal(err)
	}
	select {
	case <-p.Context(t.Context()).Done():
	case <-time.After(20 * time.Second):
		t.Fatal("the holder was not told")
	}
	if err := p.Err(); !errors.Is(err, sema.ErrRevoked) {
		t.Errorf("error %v", err)
	}
}
