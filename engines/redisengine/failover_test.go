package redisengine_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"sema"
	"sema/engine"
	"sema/internal/fixture/expect"
	"sema/internal/fixture/redistest"
	"sema/internal/fixture/stall"
)

// tokenBook checks fencing tokens as a storage with one item for each slot would: a
// caller that asks after the slot's last grant, and gets the slot, has a larger token.
// No token is given out twice.
type tokenBook struct {
	mu      sync.Mutex
	largest [2]int64 // by slot
	seen    map[int64]bool
}

func (b *tokenBook) before() [2]int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.largest
}

func (b *tokenBook) granted(t *testing.T, before [2]int64, slot int, token int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.seen == nil {
		b.seen = map[int64]bool{}
	}
	if token <= before[slot] || b.seen[token] {
		t.Errorf("slot %d has token %d after %d (given before: %v)", slot, token, before[slot], b.seen[token])
	}
	b.seen[token] = true
	b.largest[slot] = max(b.largest[slot], token)
}

// "A failover loses the last grants: more holders than the limit, tokens that
// repeat." With asynchronous replication nobody can prevent the extra holders,
// so the test measures them. Tokens do not repeat, holders keep their permits
// or learn of the loss, all waiters are served, and all weight is free in the
// end.
func TestFailoverUnderLoad(t *testing.T) {
	t.Parallel()
	const limit, clients, lease = 2, 4, 8 * time.Second
	sentinel := redistest.StartSentinel(t)
	client := func() sema.Engine {
		rdb := redis.NewFailoverClient(&redis.FailoverOptions{
			MasterName: redistest.MasterName, SentinelAddrs: sentinel.Addrs(), ContextTimeoutEnabled: true,
		})
		t.Cleanup(func() { _ = rdb.Close() })
		return closing(t, rdb)
	}
	ctx := context.Background() // without a deadline: the Sentinels decide how long a failover takes
	o := &sema.Options{Lease: lease}
	keep := acquire(t, openSem(t, client(), "kept", 1, o))

	var book tokenBook
	var mu sync.Mutex
	var killed time.Time
	var outage time.Duration
	lost, served := 0, make([]int, 2*clients) // acquisitions of each worker since the failover
	stop, cancel := context.WithCancel(ctx)
	var all sync.WaitGroup
	for c := range clients {
		s := openSem(t, client(), "x", limit, &sema.Options{Lease: lease, Slots: true})
		for w := range 2 {
			all.Go(func() {
				for stop.Err() == nil {
					before := book.before()
					p, err := s.Acquire(stop)
					now := time.Now()
					if err != nil {
						var e *engine.Error
						if !errors.As(err, &e) && stop.Err() == nil {
							t.Errorf("acquire: %v", err)
						}
						continue
					}
					book.granted(t, before, p.Slot(), p.Token())
					mu.Lock()
					if !killed.IsZero() && now.After(killed) {
						if outage == 0 {
							outage = now.Sub(killed)
						}
						served[2*c+w]++
					}
					mu.Unlock()
					time.Sleep(2 * time.Millisecond) // the work
					if err := p.Release(); errors.Is(err, sema.ErrLost) {
						mu.Lock()
						lost++
						mu.Unlock()
					}
				}
			})
		}
	}
	expect.Until(t, "load", func() bool { return book.before() != [2]int64{} })
	mu.Lock()
	sentinel.Master.Kill()
	killed = time.Now()
	mu.Unlock()
	sentinel.AwaitMaster(sentinel.Replica)
	expect.Until(t, "everybody's service after the failover", func() bool {
		mu.Lock()
		defer mu.Unlock()
		for _, n := range served {
			if n < 5 {
				return false
			}
		}
		return true
	})
	cancel()
	all.Wait()
	t.Logf("kill -9 of the master, %d clients with 2 workers each on a limit of %d: the next grant %v later, %d permits lost",
		clients, limit, outage.Round(10*time.Millisecond), lost)
	expect.Until(t, "the renewal of a permit from before, or its loss", func() bool {
		err := keep.Renew(ctx)
		return err == nil || errors.Is(err, sema.ErrLost)
	})
	if err := keep.Release(); err != nil && !errors.Is(err, sema.ErrLost) {
		t.Error(err)
	}
	s := openSem(t, client(), "x", limit, o)
	wholeLimit(t, s, limit)
}

// No script can prevent the effect of a server that forgets everything: it
// admits new holders beside the forgotten ones, until those ask again. This
// test measures how many, and for how long.
func TestOverAdmissionAfterForgetting(t *testing.T) {
	t.Parallel()
	const holders, lease = 5, 3 * time.Second
	restart := func(s *redistest.Server) { s.Restart() }
	flush := func(s *redistest.Server) { expect.OK(t, s.Client().FlushAll(context.Background()).Err()) }
	for what, of := range map[string]struct {
		forget func(*redistest.Server)
		renew  time.Duration
	}{
		"restart without data": {restart, 0},
		"FLUSHALL":             {flush, 0},
		"FLUSHALL, NoRenewal":  {flush, sema.NoRenewal}, // the holders learn of the loss only from their clocks
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			stall.Run(t, func(t *stall.Case) {
				server := redistest.Start(t)
				o := &sema.Options{Lease: lease, Renew: of.renew}
				var old []*sema.Permit
				for range holders {
					old = append(old, acquire(t, openSem(t, engineAt(t, server.Addr()), "x", holders, o)))
				}
				known := make(chan time.Time, holders)
				for _, p := range old {
					go func() { <-p.Context(context.Background()).Done(); known <- time.Now() }()
				}
				of.forget(server)
				began := time.Now()
				extra := 0
				for range holders {
					acquire(t, openSem(t, engineAt(t, server.Addr()), "x", holders, o))
				}
				for _, p := range old {
					if p.Err() == nil {
						extra++
					}
				}
				var last time.Time
				for range old {
					last = <-known
				}
				took := last.Sub(began)
				t.Logf("%s under %d holders with leases of %v: %d held beside %d new ones; the last of them knew after %v",
					what, holders, lease, extra, holders, took.Round(10*time.Millisecond))
				if took > lease {
					t.Errorf("a holder did not know within its lease, but after %v", took)
				}
			})
		})
	}
}
