package redisengine_test

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"sema"
	"sema/internal/fixture/expect"
	"sema/internal/fixture/redistest"
)

// Callers of one process that hold for no time: those of a semaphore without keys, of one key
// and of two keys take turns of 50 ms, and medians are beside each other:
// go test -run xxx -bench KeysOfAProcess -benchtime 31x.
func BenchmarkKeysOfAProcess(b *testing.B) {
	const limit, callers, turn = 8, 64, 50 * time.Millisecond
	server := redistest.Start(b)
	kinds := []struct {
		name string
		keys []string
		sem  *sema.Semaphore
		rate []float64 // pairs a second
	}{
		{name: "keyless", keys: []string{""}},
		{name: "one-key", keys: []string{"a"}},
		{name: "two-keys", keys: []string{"a", "b"}},
	}
	for i := range kinds {
		kinds[i].sem = openSem(b, engineAt(b, server.Addr()), kinds[i].name, limit, nil)
	}
	for b.Loop() {
		for i := range kinds {
			k := &kinds[i]
			ctx, cancel := context.WithTimeout(b.Context(), turn)
			var pairs atomic.Int64
			var all sync.WaitGroup
			began := time.Now()
			for c := range callers {
				acquire := k.sem.Acquire
				if key := k.keys[c%len(k.keys)]; key != "" {
					acquire = k.sem.For(key).Acquire
				}
				all.Go(func() {
					for {
						p, err := acquire(ctx)
						if err != nil {
							return
						}
						expect.OK(b, p.Release())
						pairs.Add(1)
					}
				})
			}
			all.Wait()
			cancel()
			k.rate = append(k.rate, float64(pairs.Load())/time.Since(began).Seconds())
		}
	}
	median := func(list []float64) float64 { slices.Sort(list); return list[len(list)/2] }
	keyless := median(kinds[0].rate)
	for _, k := range kinds {
		b.ReportMetric(median(k.rate), k.name+"-pairs/s")
		b.ReportMetric(median(k.rate)/keyless, k.name+"/keyless")
	}
}
