package redisengine_test

import (
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"sema"
	"sema/internal/redistest"
)

// Keys that never expire (25 million fencing keys in Redisson #6510): after each
// kind of operation every key has a time to live.
func TestEveryKeyExpires(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	rdb := server.Client()
	check := func(after string) {
		t.Helper()
		if list := eternal(t, rdb); len(list) > 0 {
			t.Errorf("after %s: no time to live: %v", after, list)
		}
	}
	e := engineAt(t, server.Addr())
	ctx := within(t)

	listed := openSem(t, e, "x", 2, &sema.Options{Slots: true, Label: "nightly import"})
	plain := openSem(t, e, "x", 2, nil)
	a := acquire(t, listed)
	check("a labelled acquisition with a slot")
	b := acquire(t, plain)
	check("a plain acquisition")
	w := queue(t, plain)
	check("queueing")
	must(t, a.Renew(ctx))
	check("a renewal")
	must(t, plain.Revoke(ctx, b.ID()))
	check("a revocation")
	_ = b.Release()
	c := w.permit(t)
	check("a hand-off")
	single := openSem(t, e, "y", 1, nil)
	d := acquire(t, single)
	gone := queue(t, single)
	gone.cancel()
	<-gone.got
	check("a cancelled wait")
	must(t, d.Release())
	must(t, c.Release())
	must(t, a.Release())
	check("the last release")
	declared := openSem(t, e, "z", 3, &sema.Options{OnConflict: sema.Declare})
	must(t, acquire(t, declared).Release())
	check("a declared limit")

	// Idle, all of it goes away by itself: nothing is kept much longer than
	// two leases and two minutes.
	for key := range dump(t, rdb) {
		if ttl := rdb.PTTL(ctx, key).Val(); ttl > 2*(30*time.Second+time.Minute) {
			t.Errorf("%s stays for %v", key, ttl)
		}
	}
}

// A pinned limit outlives idleness, and only the key that holds it.
func TestOnlyAPinnedStateStays(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	rdb := server.Client()
	s := openSem(t, engineAt(t, server.Addr()), "x", 2, &sema.Options{Slots: true, Label: "l"})
	p := acquire(t, s)
	must(t, s.SetLimit(within(t), 1))
	w := queue(t, s)
	want := "sema:{x}:state"
	for _, after := range []string{"with a holder and a waiter", "after all was released"} {
		if list := eternal(t, rdb); len(list) != 1 || list[0] != want {
			t.Errorf("%s: no time to live: %v; want only %s", after, list, want)
		}
		if p != nil {
			must(t, p.Release())
			must(t, w.permit(t).Release())
			p = nil
		}
	}
	if st := stateOf(t, openSem(t, engineAt(t, server.Addr()), "x", 5, nil)); st.Limit != 1 || !st.Pinned {
		t.Errorf("pinned to 1, and now %+v", st)
	}
}

// node redis-semaphore: a short lease shortened the life of the shared key, and
// with it the leases of others.
func TestAShortLeaseShortensNothing(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	rdb := server.Client()
	ctx := within(t)
	e := engineAt(t, server.Addr())
	long := openSem(t, e, "x", 4, &sema.Options{Lease: time.Hour, Slots: true, Label: "long"})
	keep := acquire(t, long)
	ends := func() map[string]int64 {
		m := map[string]int64{}
		for key := range dump(t, rdb) {
			if !strings.Contains(key, ":client:") { // each client has its own
				m[key] = rdb.Do(ctx, "PEXPIRETIME", key).Val().(int64)
			}
		}
		return m
	}
	before := ends()
	check := func(what string) {
		t.Helper()
		after := ends()
		for key, end := range before {
			if after[key] != -1 && after[key] < end {
				t.Errorf("%s: %s ends %v earlier", what, key, time.Duration(end-after[key])*time.Millisecond)
			}
		}
	}
	short := openSem(t, engineAt(t, server.Addr()), "x", 4, &sema.Options{Lease: sema.MinLease, Renew: sema.NoRenewal, Slots: true, Label: "short"})
	p := acquire(t, short)
	check("a short lease")
	must(t, p.Renew(ctx))
	check("its renewal")
	must(t, short.Revoke(ctx, p.ID()))
	check("its revocation")
	<-p.Context().Done()
	check("its end")

	// Nor when somebody deleted the state under the holders.
	for _, step := range []struct {
		what string
		do   func()
	}{
		{"an acquisition", func() { _ = acquire(t, short).Release() }},
		{"a renewal", func() { must(t, keep.Renew(ctx)) }},
		{"a revocation", func() { must(t, short.Revoke(ctx, keep.ID())) }},
	} {
		must(t, rdb.Del(ctx, "sema:{x}:state").Err())
		delete(before, "sema:{x}:state")
		step.do()
		check(step.what + " after the state was deleted")
		if list := eternal(t, rdb); len(list) > 0 {
			t.Errorf("%s after the state was deleted: no time to live: %v", step.what, list)
		}
	}
}

// The whole key's time to live is refreshed on a grant only: elsewhere a
// saturated semaphore vanished under its holders. Here renewals and waiting do.
func TestASaturatedSemaphoreStays(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	rdb := server.Client()
	ctx := within(t)
	layout, err := os.ReadFile("lua/layout.lua")
	must(t, err)
	s := session(t, engineAt(t, server.Addr()), "x")
	holder, waiter := request(s, 1, time.Hour), request(s, 2, time.Hour)
	waiter.Wait = true
	for what, do := range map[string]func() error{
		"a renewal": func() error { holder.Token = 1; _, err := s.Renew(ctx, []sema.Request{holder}); return err },
		"an ask":    func() error { _, err := s.Renew(ctx, []sema.Request{waiter}); return err },
	} {
		holder.Token = 0
		_, err := s.Acquire(ctx, holder)
		must(t, err)
		_, err = s.Acquire(ctx, waiter)
		must(t, err)
		// As if most of the time had passed.
		must(t, rdb.Eval(ctx, string(layout)+`
			local s = {struct.unpack(LAYOUT, redis.call('GET', KEYS[1]))}
			s[6] = tonumber(ARGV[1])
			redis.call('SET', KEYS[1], struct.pack(LAYOUT, unpack(s, 1, 14)))
			return 1`, []string{"sema:{x}:state"}, time.Now().Add(time.Minute).UnixMicro()).Err())
		for key := range dump(t, rdb) {
			must(t, rdb.PExpire(ctx, key, time.Minute).Err())
		}
		must(t, do())
		for _, kind := range []string{"state", "holders", "waiters", "tickets"} {
			if ttl := rdb.PTTL(ctx, "sema:{x}:"+kind).Val(); ttl < time.Hour {
				t.Errorf("after %s %s lives for %v, less than the lease", what, kind, ttl)
			}
		}
	}
}

// Two primitives use one key name (maven-resolver #1374): a clear error, and
// nothing is changed, be the semaphore new or in use. What does not need that
// key may go on; the key is left alone.
func TestAForeignKeyIsRefused(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	rdb := server.Client()
	ctx := within(t)
	e := engineAt(t, server.Addr())
	for _, kind := range []string{"state", "holders", "waiters", "tickets", "slots", "tokens"} {
		for _, inUse := range []bool{false, true} {
			for _, list := range []bool{false, true} {
				must(t, rdb.FlushAll(ctx).Err())
				s := openSem(t, e, "x", 1, &sema.Options{Slots: true, Label: "l", Renew: sema.NoRenewal})
				var held *sema.Permit
				if inUse {
					held = acquire(t, s)
				}
				key := "sema:{x}:" + kind
				must(t, rdb.Del(ctx, key).Err())
				if list {
					must(t, rdb.LPush(ctx, key, "theirs").Err())
				} else {
					must(t, rdb.Set(ctx, key, "theirs", 0).Err())
				}
				queue := kind == "waiters" || kind == "tickets"
				for what, do := range map[string]func() error{
					"acquire":   func() error { _, err := s.Acquire(ctx); return err },
					"try":       func() error { _, err := s.TryAcquire(ctx); return err },
					"set limit": func() error { return s.SetLimit(ctx, 7) },
					"state":     func() error { _, err := s.State(ctx); return err },
					"renew":     func() error { return held.Renew(ctx) },
				} {
					if what == "renew" && held == nil {
						continue
					}
					before := dump(t, rdb)
					err := do()
					after := dump(t, rdb)
					if inUse && queue && (what == "renew" || what == "try") {
						if before[key] != after[key] {
							t.Errorf("%s changed %s of another program: %q, now %q", what, kind, before[key], after[key])
						}
						if what == "renew" && err != nil || what == "try" && !errors.Is(err, sema.ErrUnavailable) {
							t.Errorf("%s, which does not need %s: %v", what, kind, err)
						}
						continue
					}
					t.Run(strings.Join([]string{kind, what}, "/"), func(t *testing.T) {
						engineError(t, err, "WRONGTYPE", "another program", true)
					})
					if !sameDump(before, after) {
						t.Errorf("%s with a foreign %s: changed\nbefore %q\nafter %q", what, kind, before, after)
					}
				}
				before := dump(t, rdb)
				must(t, s.Close()) // what a failed acquisition gives back is given back by now
				if after := dump(t, rdb); before[key] != after[key] {
					t.Errorf("%s of another program: %q, now %q", kind, before[key], after[key])
				}
			}
		}
	}
}

func sameDump(a, b map[string]string) bool {
	if len(a) != len(b) {
		return false
	}
	for k, v := range a {
		if b[k] != v {
			return false
		}
	}
	return true
}
