package redisengine_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"sema"
	"sema/internal/fixture/expect"
	"sema/internal/fixture/redistest"
)

// The time of an acquire and a release, and the server's for a call, in µs, by how many names the key has: of a
// caller alone, and of 64 callers in 8 processes that hand over 8 permits. The depths take turns of 20 ms; it
// prints the medians: go test -run xxx -bench Depth -benchtime 51x.
func BenchmarkDepth(b *testing.B) {
	server := redistest.Start(b)
	rdb := server.Client()
	times := map[string][]float64{}
	type kind struct {
		name    string
		key     sema.AcquireOption
		callers int
		sems    []*sema.Semaphore
	}
	var kinds []*kind
	for depth := range deepest + 1 {
		for _, callers := range []int{1, 64} {
			k := &kind{fmt.Sprintf("%d-callers-depth-%d", callers, depth), sema.AcquireOption{}, callers, nil}
			if depth > 0 {
				k.key = sema.For([]string{"acme", "alice", "chat"}[:depth]...)
			}
			for range min(callers, 8) {
				k.sems = append(k.sems, openSem(b, engineAt(b, server.Addr()), k.name, 8, nil))
			}
			kinds = append(kinds, k)
		}
	}
	for b.Loop() {
		for _, k := range kinds {
			before := evalTime(b, rdb)
			ctx, cancel := context.WithTimeout(b.Context(), 20*time.Millisecond)
			var all sync.WaitGroup
			var pairs atomic.Int64
			began := time.Now()
			for c := range k.callers {
				all.Go(func() {
					for {
						p, err := k.sems[c%len(k.sems)].Acquire(ctx, k.key)
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
			times[k.name+"-pair"] = append(times[k.name+"-pair"], float64(time.Since(began).Microseconds())/float64(max(1, pairs.Load())))
			after := evalTime(b, rdb)
			times[k.name] = append(times[k.name], (after.usec-before.usec)/(after.calls-before.calls))
		}
	}
	for name, all := range times {
		slices.Sort(all)
		b.ReportMetric(all[len(all)/2], name+"-µs")
	}
	b.ReportMetric(0, "ns/op")
}

// evals is how many calls a server has carried out, and their time in µs.
type evals struct{ calls, usec float64 }

func evalTime(tb testing.TB, rdb *redis.Client) (e evals) {
	info, err := rdb.Info(expect.Within(tb), "commandstats").Result()
	expect.OK(tb, err)
	if _, rest, found := strings.Cut(info, "cmdstat_evalsha:"); found {
		_, err = fmt.Sscanf(rest, "calls=%f,usec=%f", &e.calls, &e.usec)
		expect.OK(tb, err)
	}
	return e
}

// deepest is the most names that a key has in benchmarks.
const deepest = 3
