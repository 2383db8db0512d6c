package each_test

import (
	"fmt"
	"runtime"
	"testing"

	"sema"
	"sema/each"
	"sema/engines/memengine"
	"sema/internal/fixture/expect"
)

// What a permit of a name costs beside a plain one and one of a key, in memory: the engine's
// part is the same for each call.
func BenchmarkGroup(b *testing.B) {
	e := memengine.New()
	s, err := sema.New(e, "plain", 1, nil)
	expect.OK(b, err)
	g, err := each.New(e, "names", 1, nil)
	expect.OK(b, err)
	for _, kind := range []struct {
		name    string
		acquire func() (*sema.Permit, error)
	}{
		{"Semaphore", func() (*sema.Permit, error) { return s.Acquire(b.Context()) }},
		{"For", func() (*sema.Permit, error) { return s.Acquire(b.Context(), sema.For("a")) }},
		{"Group", func() (*sema.Permit, error) { return g.Acquire(b.Context(), "a") }},
		{"Group and Weight", func() (*sema.Permit, error) { return g.Acquire(b.Context(), "a", sema.Weight(1)) }},
	} {
		b.Run(kind.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				p, err := kind.acquire()
				expect.OK(b, err)
				_ = p.Release()
			}
		})
	}
	_ = g.Close()
	_ = s.Close()
}

// What a name that is open and idle keeps of this process's memory.
func BenchmarkIdleNames(b *testing.B) {
	const names = 10_000
	for b.Loop() {
		var before, after runtime.MemStats
		g, err := each.New(memengine.New(), "idle", 1, &each.Options{Open: names})
		expect.OK(b, err)
		runtime.GC()
		runtime.ReadMemStats(&before)
		for i := range names {
			p, err := g.Acquire(b.Context(), fmt.Sprint(i))
			expect.OK(b, err)
			_ = p.Release()
		}
		runtime.GC()
		runtime.ReadMemStats(&after)
		b.ReportMetric(float64(after.HeapAlloc-before.HeapAlloc)/names, "B/name")
		_ = g.Close()
	}
}
