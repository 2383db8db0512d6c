package admit

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"sema"
	"sema/engines/redisengine"
	"sema/internal/fixture/expect"
	"sema/internal/fixture/redistest"
	"sema/sematest"
)

// One answer is late. The engine answers the next question, so it is not away.
func TestOneLateAnswerIsNoOutage(t *testing.T) {
	for _, p := range []Policy{Open, Local(5, 0)} {
		for _, wait := range []time.Duration{0, 50 * time.Millisecond, NoWait} {
			policyTest(t, Options{Outage: p, Wait: wait}, 5, func(t *testing.T, c *crowd) {
				c.engine.Inject(sematest.Fault{Delay: 120 * time.Millisecond, Times: 1})
				c.send(t.Context(), 5)
				time.Sleep(5 * time.Second)
				synctest.Wait()
				if c.held() != 5 || c.running.Load() != 5 || len(c.told) > 0 || len(c.errs) > 0 {
					t.Errorf("%v, Wait %v: %d held, %d run, told %+v, failed %v; want 5 with permits", p, wait, c.held(), c.running.Load(), c.told, c.errs)
				}
				close(c.leave)
			})
		}
	}
}

// Observers are told when an outage begins, when it is over, and when nobody looks any more.
func TestOutagesAreTold(t *testing.T) {
	var told []Outage
	policyTest(t, Options{Outage: Open, Told: func(x Outage) { told = append(told, x) }}, 5, func(t *testing.T, c *crowd) {
		close(c.leave)
		for i, after := range []time.Duration{10 * time.Second, time.Hour} {
			c.away()
			for range 3 {
				c.send(t.Context(), 3)
				c.wg.Wait()
			}
			if synctest.Wait(); len(told) != 2*i+1 {
				t.Fatalf("told %+v", told)
			}
			time.Sleep(after)
			c.back()
		}
		if synctest.Wait(); len(told) != 4 || told[0].Lasted != 0 || !errors.Is(told[0].Err, sema.ErrEngine) || told[0].Policy != Open ||
			told[1].Err != nil || told[1].Lasted < 10*time.Second || told[1].Lasted > 12*time.Second ||
			told[2].Lasted != 0 || told[3].Err == nil || told[3].Lasted < time.Minute || told[3].Lasted > 2*time.Minute {
			t.Errorf("told %+v", told)
		}
	})
}

// Without an observer the log says so: a line each, however many requests there are.
func TestOutagesAreLogged(t *testing.T) {
	var log bytes.Buffer
	before := slog.Default()
	slog.SetDefault(slog.New(slog.NewTextHandler(&log, nil)))
	defer slog.SetDefault(before)
	policyTest(t, Options{Outage: Local(5, 0)}, 5, func(t *testing.T, c *crowd) {
		close(c.leave)
		c.away()
		c.send(t.Context(), 5)
		c.wg.Wait()
		c.back()
	})
	lines := strings.Split(strings.TrimSpace(log.String()), "\n")
	if len(lines) != 2 || !strings.Contains(lines[0], "level=WARN") || !strings.Contains(lines[0], "admit.Local(5, 0)") ||
		!strings.Contains(lines[1], "level=INFO") || !strings.Contains(lines[1], "lasted=") {
		t.Errorf("logged:\n%s", log.String())
	}
}

// Each of two gateways is as late as its busy processors make it. Redis answers as soon as it is asked, so
// no more than the limit run at once.
func TestABusyGatewayKeepsTheLimit(t *testing.T) {
	const limit, requests, stay = 10, 40, 20 * time.Millisecond
	srv := redistest.Start(t)
	var running, most atomic.Int64
	gateway := func() func() {
		rdb := redis.NewClient(&redis.Options{Addr: srv.Addr(), ContextTimeoutEnabled: true, MaxRetries: -1, ReadTimeout: expect.Patience})
		e, err := redisengine.New(rdb, nil)
		expect.OK(t, err)
		sem, err := sema.New(e, "vendor", limit, &sema.Options{Caps: sema.Caps{6, 2}})
		expect.OK(t, err)
		t.Cleanup(func() { expect.OK(t, errors.Join(sem.Close(), e.Close(), rdb.Close())) })
		var g Gate
		options := Options{Outage: Local(5, 0)}
		return func() {
			var burst sync.WaitGroup
			for i := range requests {
				acquire := ByKey(sem, nil)
				key := []string{string(rune('a' + i%3)), string(rune('a' + i%7))}
				burst.Go(func() {
					p, err := g.Enter(expect.Within(t), options, Request{
						Name: key[0],
						Acquire: func(ctx context.Context, options ...sema.AcquireOption) (Permit, error) {
							return acquire(ctx, key, options...)
						},
						Failed: func(err error, admitted bool) { t.Errorf("an outage: %v; admitted: %v", err, admitted) },
					})
					if err != nil {
						t.Error(err)
						return
					}
					n := running.Add(1)
					for before := most.Load(); n > before && !most.CompareAndSwap(before, n); before = most.Load() {
					}
					time.Sleep(stay)
					running.Add(-1)
					Release(p)
				})
			}
			burst.Wait()
		}
	}
	first, second := gateway(), gateway()
	var over atomic.Bool
	var spinning, bursts sync.WaitGroup
	for range 5 * runtime.GOMAXPROCS(0) {
		spinning.Go(func() {
			for !over.Load() {
			}
		})
	}
	bursts.Go(first)
	bursts.Go(second)
	bursts.Wait()
	over.Store(true)
	spinning.Wait()
	if n := most.Load(); n > limit || n < 2 {
		t.Errorf("%d ran at once, the limit is %d", n, limit)
	}
	t.Logf("at most %d ran at once", most.Load())
}
