package redisengine_test

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"sema"
	"sema/internal/fixture/expect"
	"sema/internal/fixture/redistest"
)

// Another process releases as many permits as there are tickets, all at once, with a key
// for each ticket or without keys. It prints the server's time for all, and for a call,
// in ms: go test -run xxx -bench HandOverAtOnce -benchtime 5x.
func BenchmarkHandOverAtOnce(b *testing.B) {
	server := redistest.Start(b)
	rdb := server.Client()
	times := map[string][]float64{}
	for round := 0; b.Loop(); round++ {
		for _, n := range []int{1000, 4000} {
			for _, kind := range []string{"keyless", "keys"} {
				name := fmt.Sprint(kind, "-", n)
				of := func(i int) (key sema.AcquireOption) {
					if kind == "keys" {
						key = sema.For(fmt.Sprint(i))
					}
					return key
				}
				o := &sema.Options{Lease: 5 * time.Minute}
				first, second := openSem(b, engineAt(b, server.Addr()), fmt.Sprint(name, round), n, o), openSem(b, engineAt(b, server.Addr()), fmt.Sprint(name, round), n, o)
				held := make(chan *sema.Permit, 2*n)
				take := func(s *sema.Semaphore, wg *sync.WaitGroup) {
					for i := range n {
						wg.Go(func() {
							p, err := s.Acquire(b.Context(), of(i))
							expect.OK(b, err)
							held <- p
						})
					}
				}
				var holders, waiters sync.WaitGroup
				take(first, &holders)
				holders.Wait()
				take(second, &waiters)
				expect.Until(b, "all wait", func() bool { // each ticket, and each caller behind it
					st, err := second.State(b.Context())
					expect.OK(b, err)
					return st.Waiting() == n
				})
				expect.OK(b, rdb.ConfigResetStat(expect.Within(b)).Err())
				for range n {
					go func() { expect.OK(b, (<-held).Release()) }()
				}
				waiters.Wait()
				info, err := rdb.Info(expect.Within(b), "commandstats").Result()
				expect.OK(b, err)
				var calls, usec float64
				_, rest, _ := strings.Cut(info, "cmdstat_evalsha:")
				_, err = fmt.Sscanf(rest, "calls=%f,usec=%f", &calls, &usec)
				expect.OK(b, err)
				times[name] = append(times[name], usec/1000)
				times[name+"-call"] = append(times[name+"-call"], usec/1000/calls)
				for range n {
					expect.OK(b, (<-held).Release())
				}
			}
		}
	}
	for name, all := range times {
		slices.Sort(all)
		b.ReportMetric(all[len(all)/2], name+"-ms")
	}
	b.ReportMetric(0, "ns/op")
}
