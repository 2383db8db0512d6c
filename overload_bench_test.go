package sema_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"sema"
	"sema/engines/fileengine"
	"sema/engines/memengine"
	"sema/engines/redisengine"
	"sema/internal/fixture/redistest"
)

// BenchmarkOverload sends ten times as many callers as a semaphore can serve: 5,000 a second for
// 20 ms of work with a limit of 10. Each has 500 ms to wait. "unknown" hides the deadline from
// the Semaphore, which then refuses nobody early. "deadline" lets it know, and "waiting" adds
// MaxWaiting. In the rows of "two" two clients share the limit.
//
//	go test -run '^$' -bench Overload -benchtime 1x .
func BenchmarkOverload(b *testing.B) {
	engines := []struct {
		name string
		open func(b *testing.B) func() sema.Engine // another client's way to the same store
	}{
		{"memory", func(*testing.B) func() sema.Engine {
			e := memengine.New()
			return func() sema.Engine { return e }
		}},
		{"files", func(b *testing.B) func() sema.Engine {
			dir := b.TempDir()
			return func() sema.Engine {
				e, err := fileengine.New(dir, nil)
				if err != nil {
					b.Fatal(err)
				}
				return e
			}
		}},
		{"redis", func(b *testing.B) func() sema.Engine {
			addr := redistest.Start(b).Addr()
			return func() sema.Engine {
				c := redis.NewClient(&redis.Options{Addr: addr})
				b.Cleanup(func() { _ = c.Close() })
				e, err := redisengine.New(c, nil)
				if err != nil {
					b.Fatal(err)
				}
				return e
			}
		}},
	}
	for _, e := range engines {
		for _, clients := range []string{"one", "two"} {
			for _, bound := range []string{"unknown", "deadline", "waiting"} {
				b.Run(e.name+"/"+clients+"/"+bound, func(b *testing.B) { overload(b, e.open(b), clients == "two", bound) })
			}
		}
	}
}

const (
	overloadLimit = 10
	overloadWork  = 20 * time.Millisecond
	overloadWait  = 500 * time.Millisecond
	overloadEach  = time.Millisecond // five callers come in each
)

func overload(b *testing.B, open func() sema.Engine, two bool, bound string) {
	o := &sema.Options{}
	if bound == "waiting" {
		o.MaxWaiting = int(overloadLimit * 100 * time.Millisecond / overloadWork)
	}
	clients := 1
	if two {
		clients = 2
	}
	var all []*sema.Semaphore
	for range clients {
		e := open()
		s, err := sema.New(e, b.Name(), overloadLimit, o)
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() { _ = s.Close(); _ = e.Close() })
		all = append(all, s)
	}
	var served, refused []time.Duration
	var held time.Duration // by those served
	var late int
	var took time.Duration
	for b.Loop() {
		var mu sync.Mutex
		var wg sync.WaitGroup
		began := time.Now()
		settled := began.Add(time.Second) // what comes before is not counted
		for n, end := 0, began.Add(4*time.Second); time.Now().Before(end); {
			for ; time.Duration(n/5)*overloadEach < time.Since(began); n++ {
				s := all[n%len(all)]
				wg.Go(func() {
					ctx, cancel := context.WithTimeout(b.Context(), overloadWait)
					defer cancel()
					if bound == "unknown" {
						ctx, cancel = context.WithCancel(b.Context())
						defer cancel()
						defer time.AfterFunc(overloadWait, cancel).Stop()
					}
					came := time.Now()
					p, err := s.Acquire(ctx)
					waited := time.Since(came)
					if err == nil {
						time.Sleep(overloadWork)
						_ = p.Release()
					}
					work := time.Since(came) - waited
					if came.Before(settled) {
						return
					}
					mu.Lock()
					defer mu.Unlock()
					var busy *sema.BusyError
					switch {
					case err == nil:
						served, held = append(served, waited), held+work
					case errors.As(err, &busy):
						refused = append(refused, waited)
					default:
						refused = append(refused, waited)
						late++
					}
				})
			}
			time.Sleep(overloadEach)
		}
		took += time.Since(settled)
		wg.Wait()
	}
	slices.Sort(served)
	slices.Sort(refused)
	ms := func(of []time.Duration, part float64) float64 {
		if len(of) == 0 {
			return 0
		}
		return of[int(part*float64(len(of)-1))].Seconds() * 1000
	}
	b.ReportMetric(ms(served, .5), "served-p50-ms")
	b.ReportMetric(ms(served, .99), "served-p99-ms")
	b.ReportMetric(ms(refused, .5), "refused-p50-ms")
	b.ReportMetric(100*float64(late)/float64(max(1, len(served)+late)), "waited-in-vain-%")
	b.ReportMetric(float64(len(served))/took.Seconds(), "served/s")
	b.ReportMetric(100*held.Seconds()/overloadLimit/took.Seconds(), "in-use-%") // of the limit: a busy machine makes the work longer
	b.ReportMetric(0, "ns/op")
}
