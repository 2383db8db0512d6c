package semarueidis_test

import (
	"fmt"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"

	"sema"
	"sema/internal/fixture/expect"
	"sema/internal/fixture/redistest"
)

// BenchmarkInTurns has the same pairs of acquisition and release made in turns
// by a program with a go-redis client beside its rueidis client, and by one whose
// engine uses the rueidis client. Figures are medians of the rounds; connections
// are all that the program has at the end, those of rueidis included.
func BenchmarkInTurns(b *testing.B) {
	for _, load := range []struct{ semaphores, callers, pairs int }{{1, 1, 500}, {1, 64, 20000}, {8, 8, 4000}, {64, 64, 8000}} {
		b.Run(fmt.Sprintf("semaphores=%d/callers=%d", load.semaphores, load.callers), func(b *testing.B) {
			var sides [2]struct {
				server *redistest.Server
				open   []*sema.Semaphore
				took   []time.Duration
			}
			for i := range sides {
				side := &sides[i]
				side.server = redistest.Start(b)
				o := rueidis.ClientOption{InitAddress: []string{side.server.Addr()}}
				client, err := rueidis.NewClient(o)
				expect.OK(b, err)
				b.Cleanup(client.Close)
				var e sema.Engine
				if i == 0 {
					e = onGoRedis(b, &redis.Options{Addr: side.server.Addr()})
				} else {
					e = through(b, client, o, nil)
				}
				for n := range load.semaphores {
					s, err := sema.New(e, fmt.Sprint(n), load.callers, nil)
					expect.OK(b, err)
					b.Cleanup(func() { _ = s.Close() })
					side.open = append(side.open, s)
				}
			}
			var ratios []float64
			for b.Loop() {
				for i := range sides {
					runtime.GC()
					start := time.Now()
					makePairs(b, sides[i].open, load.callers, load.pairs)
					sides[i].took = append(sides[i].took, time.Since(start)/time.Duration(load.pairs))
				}
				last := len(sides[0].took) - 1
				ratios = append(ratios, float64(sides[1].took[last])/float64(sides[0].took[last]))
			}
			slices.Sort(ratios)
			b.ReportMetric(0, "ns/op")
			for i, name := range []string{"go-redis", "rueidis"} {
				slices.Sort(sides[i].took)
				b.ReportMetric(float64(sides[i].took[len(ratios)/2].Nanoseconds())/1e3, "µs-"+name)
				b.ReportMetric(float64(connections(b, sides[i].server, "normal")), "connections-"+name)
			}
			b.ReportMetric(ratios[len(ratios)/2], "times")
		})
	}
}

// makePairs makes so many acquisitions and releases.
func makePairs(b *testing.B, open []*sema.Semaphore, callers, pairs int) {
	var all sync.WaitGroup
	for i := range callers {
		all.Go(func() {
			for range pairs / callers {
				p, err := open[i%len(open)].Acquire(b.Context())
				if err == nil {
					err = p.Release()
				}
				if err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	all.Wait()
}
