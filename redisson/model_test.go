package redisson_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"

	"sema/redisson"
)

// plain is both semaphores without Redis, written as simply as possible. ended
// are permits whose lease has ended and that were not collected yet.
type plain struct {
	exists    bool
	available int
	held      []string
	ended     []string
}

func (p *plain) credit(n int) {
	if p.exists {
		p.available += n
	}
}

// collect is what every acquisition does first.
func (p *plain) collect() { p.credit(len(p.ended)); p.ended = nil }

// drop removes ids from a list and returns how many were there.
func drop(from *[]string, ids []string) int {
	gone := map[string]bool{}
	for _, id := range ids {
		gone[id] = true
	}
	var rest []string
	for _, id := range *from {
		if !gone[id] {
			rest = append(rest, id)
		}
	}
	n := len(*from) - len(rest)
	*from = rest
	return n
}

// Random operations on Redis and on the model give the same answers and leave
// the same numbers in Redis.
func TestScriptsAgreeWithTheModel(t *testing.T) {
	t.Parallel()
	f := setUp(t, redisson.Options{})
	run := 0
	rapid.Check(t, func(t *rapid.T) {
		run++
		name := fmt.Sprintf("x%d", run)
		s, err := f.client.Semaphore(name)
		if err != nil {
			t.Fatal(err)
		}
		e, err := f.client.ExpirableSemaphore(name)
		if err != nil {
			t.Fatal(err)
		}
		ctx, m := f.ctx, &plain{}
		agree := func(what string, got, want any, err error) {
			if err != nil || got != want {
				t.Fatalf("%s: %v, %v; the model says %v", what, got, err, want)
			}
		}
		granted := func(err error) bool {
			if err != nil && !errors.Is(err, redisson.ErrBusy) {
				t.Fatal(err)
			}
			return err == nil
		}
		small := rapid.IntRange(1, 4)
		var all []string // ids ever issued
		some := func() []string {
			if len(all) == 0 {
				t.Skip("no ids yet")
			}
			return rapid.SliceOfNDistinct(rapid.SampledFrom(all), 1, 3, rapid.ID[string]).Draw(t, "ids")
		}
		t.Repeat(map[string]func(*rapid.T){
			"take": func(t *rapid.T) {
				n := small.Draw(t, "n")
				want := m.exists && m.available >= n
				agree("take", granted(s.TryAcquire(ctx, n)), want, nil)
				if want {
					m.available -= n
				}
			},
			"put": func(t *rapid.T) {
				n := small.Draw(t, "n")
				ok, err := s.ReleaseIfExists(ctx, n)
				agree("put", ok, m.exists, err)
				m.credit(n)
			},
			"drain": func(t *rapid.T) {
				n, err := s.DrainPermits(ctx)
				agree("drain", n, m.available, err)
				m.available = 0
			},
			"add": func(t *rapid.T) {
				n := rapid.IntRange(-4, 4).Draw(t, "n")
				agree("add", 0, 0, s.AddPermits(ctx, n))
				if n != 0 {
					m.exists = true
					m.available += n
				}
			},
			"create": func(t *rapid.T) {
				n := small.Draw(t, "n")
				ok, err := e.TrySetPermits(ctx, n)
				agree("create", ok, !m.exists, err)
				if !m.exists {
					m.exists, m.available = true, n-len(m.held)-len(m.ended)
				}
			},
			"set": func(t *rapid.T) {
				n := rapid.IntRange(0, 6).Draw(t, "n")
				agree("set", 0, 0, e.SetPermits(ctx, n))
				m.exists, m.available = true, n-len(m.held)-len(m.ended)
			},
			"acquire": func(t *rapid.T) {
				n := small.Draw(t, "n")
				ids, err := e.TryAcquireN(ctx, n, time.Hour)
				m.collect()
				want := m.exists && m.available >= n
				agree("acquire", granted(err), want, nil)
				if want {
					m.available -= n
					m.held = append(m.held, ids...)
					all = append(all, ids...)
				}
			},
			"release": func(t *rapid.T) {
				ids := some()
				held := append([]string(nil), m.held...)
				want := drop(&held, ids) == len(ids)
				ok, err := e.TryRelease(ctx, ids...)
				agree("release", ok, want, err)
				if want {
					m.held = held
					m.credit(len(ids))
				} else {
					m.credit(drop(&m.ended, ids))
				}
			},
			"renew": func(t *rapid.T) {
				id := some()[:1]
				held := append([]string(nil), m.held...)
				ok, err := e.UpdateLeaseTime(ctx, id[0], redisson.NoLease)
				agree("renew", ok, drop(&held, id) == 1, err)
			},
			"end": func(t *rapid.T) {
				id := some()[:1]
				if drop(&m.held, id) == 1 {
					m.ended = append(m.ended, id...)
					endLease(f.t, f, "{"+name+"}:timeout", id[0])
				}
			},
			"lose": func(t *rapid.T) { // the counter goes, the held permits stay
				ok, err := s.Delete(ctx)
				agree("lose", ok, m.exists, err)
				m.exists, m.available = false, 0
			},
			"delete": func(t *rapid.T) {
				ok, err := e.Delete(ctx)
				agree("delete", ok, m.exists, err)
				*m = plain{}
			},
			"": func(t *rapid.T) {
				v, err := s.AvailablePermits(ctx)
				agree("counter", v, m.available, err)
				n, err := e.AcquiredPermits(ctx)
				agree("acquired", n, len(m.held), err)
				available, permits := 0, 0
				if m.exists {
					available = m.available + len(m.ended)
					permits = available + len(m.held)
				}
				n, err = e.AvailablePermits(ctx)
				agree("available", n, available, err)
				n, err = e.Permits(ctx)
				agree("permits", n, permits, err)
				card, err := f.rdb.ZCard(ctx, "{"+name+"}:timeout").Result()
				agree("permits kept", int(card), len(m.held)+len(m.ended), err)
			},
		})
	})
}
