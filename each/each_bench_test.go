package sema_test

import (
	"fmt"
	"runtime"
	"testing"

	"sema"
	"sema/engine/memengine"
)

// What a permit of a key costs beside a plain one, in memory: the engine's part is
// the same for each call.
func BenchmarkKeys(b *testing.B) {
	e := memengine.New()
	s, err := sema.New(e, "plain", 1, nil)
	if err != nil {
		b.Fatal(err)
	}
	b.Run("Semaphore", func(b *testing.B) {
		for b.Loop() {
			p, err := s.Acquire(b.Context())
			if err != nil {
				b.Fatal(err)
			}
			_ = p.Release()
		}
	})
	b.Run("Key", func(b *testing.B) {
		for b.Loop() {
			p, err := s.For("a").Acquire(b.Context())
			if err != nil {
				b.Fatal(err)
			}
			_ = p.Release()
		}
	})
	k, err := sema.NewKeys(e, "keys", 1, nil)
	if err != nil {
		b.Fatal(err)
	}
	b.Run("Keys", func(b *testing.B) {
		for b.Loop() {
			p, err := k.Acquire(b.Context(), "a")
			if err != nil {
				b.Fatal(err)
			}
			_ = p.Release()
		}
	})
	_ = k.Close()
	_ = s.Close()
}

// What a key that is open and idle keeps of this process's memory.
func BenchmarkIdleKeys(b *testing.B) {
	const keys = 10_000
	for b.Loop() {
		var before, after runtime.MemStats
		e := memengine.New()
		k, err := sema.NewKeys(e, "idle", 1, &sema.KeysOptions{Open: keys})
		if err != nil {
			b.Fatal(err)
		}
		runtime.GC()
		runtime.ReadMemStats(&before)
		for i := range keys {
			p, err := k.Acquire(b.Context(), fmt.Sprint(i))
			if err != nil {
				b.Fatal(err)
			}
			_ = p.Release()
		}
		runtime.GC()
		runtime.ReadMemStats(&after)
		b.ReportMetric(float64(after.HeapAlloc-before.HeapAlloc)/keys, "B/key")
		_ = k.Close()
	}
}
