package redisengine_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"sema"
	"sema/engine"
	"sema/internal/fixture/expect"
	"sema/internal/fixture/redistest"
	"sema/internal/protocol"
)

// "Keys that never expire" (25 million fencing keys in Redisson #6510): here
// each key has a time to live after each kind of operation.
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
	ctx := expect.Within(t)

	listed := openSem(t, e, "x", 2, &sema.Options{Slots: true, Label: "nightly import"})
	plain := openSem(t, e, "x", 2, nil)
	a := acquire(t, listed)
	check("a labelled acquisition with a slot")
	b := acquire(t, plain)
	check("a plain acquisition")
	w := queue(t, plain)
	check("queueing")
	expect.OK(t, a.Renew(ctx))
	check("a renewal")
	expect.OK(t, operator(t, e, "x").Revoke(ctx, b.ID()))
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
	expect.OK(t, d.Release())
	expect.OK(t, c.Release())
	expect.OK(t, a.Release())
	check("the last release")
	expect.OK(t, acquire(t, openSem(t, e, "z", 3, nil)).Release())
	check("a newer limit")

	// All keys of an idle semaphore expire: after little more than two leases
	// and two minutes. Only fences stay for 1000 seconds. They exist if a client
	// lost a reply, as on a busy machine.
	for key := range dump(t, rdb) {
		most := 2 * (30*time.Second + time.Minute)
		if strings.HasSuffix(key, ":fences") {
			most = 1000 * time.Second
		}
		if ttl := rdb.PTTL(ctx, key).Val(); ttl > most {
			t.Errorf("%s stays for %v", key, ttl)
		}
	}
}

// A pinned limit does not expire; all other keys do. An unused semaphore can be removed.
func TestOnlyAPinnedStateStays(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	rdb := server.Client()
	ctx := expect.Within(t)
	e := engineAt(t, server.Addr())
	s, o := openSem(t, e, "x", 2, &sema.Options{Slots: true, Label: "l"}), operator(t, e, "x")
	stays := func(when string, want ...string) {
		t.Helper()
		if list := eternal(t, rdb); !slices.Equal(list, want) {
			t.Errorf("%s: no time to live: %v; want %v", when, list, want)
		}
	}
	p := acquire(t, s)
	expect.OK(t, o.Set(ctx, sema.Rule{Limit: 1}))
	w := queue(t, s)
	stays("with a holder and a waiter", "sema:{x}:state")
	if err := o.Remove(ctx); err == nil {
		t.Error("removed in use")
	}
	expect.OK(t, p.Release())
	expect.OK(t, w.permit(t).Release())
	stays("after all was released", "sema:{x}:state")
	if st := stateOf(t, openSem(t, engineAt(t, server.Addr()), "x", 5, nil)); st.Limit != 1 || !st.Pinned {
		t.Errorf("pinned to 1, and now %+v", st)
	}
	expect.OK(t, o.Unset(ctx))
	stays("no longer pinned")
	expect.OK(t, o.Remove(ctx))
	for key := range dump(t, rdb) {
		if key == "sema:{x}:state" || key == "sema:{x}:holders" {
			t.Errorf("%s is left", key)
		}
	}
	if names, err := patientAt(t, server.Addr()).List(ctx); err != nil || len(names) != 0 {
		t.Errorf("removed, and listed: %q, %v", names, err)
	}
}

// The state is deleted under a holder: the semaphore begins anew, and the
// holder learns of the loss at its next renewal.
func TestADeletedStateBeginsAnew(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	rdb := server.Client()
	ctx := expect.Within(t)
	o := &sema.Options{Slots: true, Renew: sema.NoRenewal}
	s, other := openSem(t, engineAt(t, server.Addr()), "x", 1, o), openSem(t, engineAt(t, server.Addr()), "x", 1, o)
	old := acquire(t, s)
	expect.OK(t, rdb.Del(ctx, "sema:{x}:state").Err())
	next := acquire(t, other)
	if next.Token() <= old.Token() {
		t.Errorf("token %d after %d", next.Token(), old.Token())
	}
	expect.Is(t, old.Renew(ctx), sema.ErrLost)
	if list := eternal(t, rdb); len(list) > 0 {
		t.Errorf("no time to live: %v", list)
	}
	expect.OK(t, next.Release())
	wholeLimit(t, s, 1)
}

// The queue is deleted: a waiter that asks again gets its old place.
func TestADeletedQueue(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	s := session(t, patientAt(t, server.Addr()), "x")
	ask := func(number uint64, waited time.Duration) protocol.Answer {
		r := s.request(protocol.Ask, number, time.Minute)
		r.Wait, r.Waited = true, waited
		return s.do(r)[0]
	}
	ask(1, 0)
	ask(2, time.Hour)
	expect.OK(t, server.Client().Del(expect.Within(t), "sema:{x}:waiters").Err())
	ask(3, 0)
	if again := ask(2, 2*time.Hour); again.Status != protocol.Queued || again.Ahead != 0 {
		t.Errorf("asked again: %+v; want its place at the head", again)
	}
	s.do(s.request(protocol.Release, 1, 0))
	if a := ask(2, 2*time.Hour); a.Status != protocol.Granted {
		t.Errorf("after the release: %+v", a)
	}
}

// Another version of sema uses the semaphore. The error names both versions and is
// temporary. Nothing is changed, in any other layout.
func TestAnotherVersionIsWaitedFor(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	rdb := server.Client()
	for _, raw := range []string{"sem0", "sem9", "sem2" + strings.Repeat("\x00", 300), "sem2" + strings.Repeat("\xff", 20)} {
		expect.OK(t, rdb.HSet(expect.Within(t), "sema:{x}:state", "", raw).Err())
		before := dump(t, rdb)
		s := openSem(t, engineAt(t, server.Addr()), "x", 1, nil)
		try := func() error {
			ctx, cancel := context.WithTimeout(expect.Within(t), 100*time.Millisecond)
			defer cancel()
			_, err := s.TryAcquire(ctx)
			return err
		}
		var tried error
		expect.Until(t, "the server's answer", func() bool { // the first call connects and loads the script, and may take longer than its deadline
			tried = try()
			return strings.Contains(fmt.Sprint(tried), raw[:4])
		})
		_, looked := s.State(expect.Within(t))
		for what, err := range map[string]error{"try": tried, "state": looked} {
			var failure *engine.Error
			if !errors.As(err, &failure) || !failure.Temporary || !failure.NotExecuted || strings.Contains(failure.Hint, "or delete") {
				t.Errorf("%.4s, %s: %#v", raw, what, err)
			} else if text := err.Error(); !strings.Contains(text, raw[:4]) || !strings.Contains(text, "sem1") {
				t.Errorf("%.4s, %s: %q names not both", raw, what, text)
			}
		}
		if !sameDump(before, dump(t, rdb)) {
			t.Errorf("%.4s: something was changed", raw)
		}
		expect.OK(t, rdb.HSet(expect.Within(t), "sema:{x}:state", "release", "0.9.1").Err())
		expect.Until(t, "the error names both releases", func() bool {
			err := try()
			return err != nil && strings.Contains(err.Error(), "sema 0.9.1") && strings.Contains(err.Error(), "sema "+engine.Version)
		})
	}
	// When the other version has left, the wait goes on.
	s := openSem(t, engineAt(t, server.Addr()), "x", 1, nil)
	w := start(t, s)
	refused := func() string { // by the server's count of errors
		_, rest, _ := strings.Cut(rdb.Info(expect.Within(t), "errorstats").Val(), "errorstat_SEMAVERSION:")
		count, _, _ := strings.Cut(rest, "\r\n")
		return count
	}
	before := refused()
	expect.Until(t, "it is refused", func() bool { return refused() != before })
	expect.OK(t, rdb.Del(expect.Within(t), "sema:{x}:state").Err())
	expect.OK(t, w.permit(t).Release())
}

// The leases are deleted or evicted, and one of the holders is dead. Its weight comes
// back as after any death, although the semaphore is in use all the time.
func TestDeletedLeasesComeBack(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	rdb := server.Client()
	ctx := expect.Within(t)
	dead, user := session(t, patientAt(t, server.Addr()), "x"), session(t, patientAt(t, server.Addr()), "x")
	ask := func(d *direct, number uint64, weight int, lease time.Duration) protocol.Answer {
		r := d.request(protocol.Ask, number, lease)
		r.ID.Weight, r.Limit = weight, 3
		return d.do(r)[0]
	}
	ask(dead, 1, 1, 2*time.Second)
	ask(user, 1, 1, time.Minute)
	expect.OK(t, rdb.Del(ctx, "sema:{x}:holders").Err())
	for number := uint64(2); ; number++ {
		expect.OK(t, ctx.Err())
		user.do(user.request(protocol.Renew, 1, time.Minute))
		ask(user, number, 1, time.Hour) // the longest lease so far, so the keys' time to live is set again
		user.do(user.request(protocol.Release, number, 0))
		if a := ask(user, 1_000_000, 2, time.Minute); a.Status == protocol.Granted {
			break // the dead one's weight is free
		}
	}
	if a := user.do(user.request(protocol.Renew, 1, time.Minute))[0]; a.Status != protocol.Granted {
		t.Errorf("the permit of the one that lives: %+v", a)
	}
	if st, err := user.State(ctx); err != nil || st.Used != 3 || len(st.Holders) != 2 {
		t.Errorf("%+v, %v; want the two that the living one has", st, err)
	}
}

// "Only a grant refreshes the key's time to live": elsewhere a saturated
// semaphore vanished under its holders. Here renewals and asks refresh it, too.
func TestASaturatedSemaphoreStays(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	rdb := server.Client()
	ctx := expect.Within(t)
	words, err := os.ReadFile("lua/layout.lua")
	expect.OK(t, err)
	s := session(t, patientAt(t, server.Addr()), "x")
	holder, waiter := s.request(protocol.Ask, 1, time.Hour), s.request(protocol.Ask, 2, time.Hour)
	waiter.Wait = true
	for what, r := range map[string]protocol.Request{"a renewal": s.request(protocol.Renew, 1, time.Hour), "an ask": waiter} {
		s.do(holder)
		s.do(waiter)
		// As after most of the time to live.
		expect.OK(t, rdb.Eval(ctx, string(words)+`
			local s = {struct.unpack(STATE, redis.call('HGET', KEYS[1], ''))}
			s[5] = tonumber(ARGV[1])
			return redis.call('HSET', KEYS[1], '', struct.pack(STATE, unpack(s, 1, 13)))`,
			[]string{"sema:{x}:state"}, time.Now().Add(time.Minute).UnixMicro()).Err())
		for key := range dump(t, rdb) {
			expect.OK(t, rdb.PExpire(ctx, key, time.Minute).Err())
		}
		s.do(r)
		for _, kind := range []string{"state", "holders", "waiters"} {
			if ttl := rdb.PTTL(ctx, "sema:{x}:"+kind).Val(); ttl < time.Hour {
				t.Errorf("after %s %s lives for %v, less than the lease", what, kind, ttl)
			}
		}
	}
}

// "Two primitives use one key name" (maven-resolver #1374): here the error is
// clear and nothing is changed, on a new semaphore and on one in use. Calls
// that do not need the foreign key may go on, and the key stays as it is.
func TestAForeignKeyIsRefused(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	rdb := server.Client()
	ctx := expect.Within(t)
	e := engineAt(t, server.Addr())
	// The calls that must fail, by whether there is a holder and by the foreign
	// key.
	all := []string{"acquire", "try", "set limit", "state", "renew"}
	fails := map[bool]map[string][]string{
		false: {"state": all, "holders": all[:3], "waiters": all[:3], "slots": all[:3], "fences": all[:3], "keepers": all[:3]},
		true:  {"state": all, "holders": {"acquire", "state", "renew"}, "waiters": {"acquire", "state"}},
	}
	for _, kind := range []string{"state", "holders", "waiters", "slots", "fences", "keepers"} {
		for _, inUse := range []bool{false, true} {
			for _, value := range []string{"string", "list", "hash"} {
				foreignKey(ctx, t, e, rdb, kind, "", inUse, value, fails[inUse][kind])
			}
		}
	}
	// The same for a semaphore with keys.
	fails = map[bool]map[string][]string{
		false: {"turn": all[:2], "keys": all[:2], "lines": all[:2]},
		true:  {"turn": {"acquire"}, "keys": {"acquire", "try", "set limit", "state", "renew"}, "lines": {"acquire", "state"}},
	}
	for _, kind := range []string{"turn", "keys", "lines"} {
		for _, inUse := range []bool{false, true} {
			for _, value := range []string{"string", "list", "hash"} {
				foreignKey(ctx, t, e, rdb, kind, "acme", inUse, value, fails[inUse][kind])
			}
		}
	}
}

// foreignKey writes a foreign value to a key that a semaphore needs, and tries all calls.
// of is the key of the permits; "": the semaphore has no keys.
func foreignKey(ctx context.Context, t *testing.T, e sema.Engine, rdb *redis.Client, kind, of string, inUse bool, value string, fails []string) {
	expect.OK(t, rdb.FlushAll(ctx).Err())
	s := openSem(t, e, "x", 1, &sema.Options{Slots: true, Label: "l", Renew: sema.NoRenewal})
	key := sema.AcquireOption{}
	if of != "" {
		key = sema.For(of)
	}
	take := func(ctx context.Context) (*sema.Permit, error) { return s.Acquire(ctx, key) }
	try := func(ctx context.Context) (*sema.Permit, error) { return s.TryAcquire(ctx, key) }
	o := operator(t, e, "x")
	defer func() { expect.OK(t, rdb.Del(ctx, "sema:{x}:"+kind).Err()); expect.OK(t, s.Close()) }() // Close sends the releases that are due
	var held *sema.Permit
	if inUse {
		var err error
		held, err = take(ctx)
		expect.OK(t, err)
	}
	at := "sema:{x}:" + kind
	expect.OK(t, rdb.Del(ctx, at).Err())
	switch value {
	case "string":
		expect.OK(t, rdb.Set(ctx, at, "theirs", 0).Err())
	case "list":
		expect.OK(t, rdb.LPush(ctx, at, "theirs").Err())
	case "hash":
		if kind == "fences" || kind == "keepers" || kind == "keys" {
			return // the key is a hash anyway
		}
		expect.OK(t, rdb.HSet(ctx, at, "theirs", 1).Err())
	}
	for what, do := range map[string]func() error{
		"acquire":   func() error { _, err := take(ctx); return err },
		"try":       func() error { _, err := try(ctx); return err },
		"set limit": func() error { return o.Set(ctx, sema.Rule{Limit: 7}) },
		"state":     func() error { _, err := s.State(ctx); return err },
		"renew":     func() error { return held.Renew(ctx) },
	} {
		mustFail := slices.Contains(fails, what)
		if what == "renew" && held == nil || what == "acquire" && !mustFail {
			continue
		}
		before := dump(t, rdb)
		err := do()
		after := dump(t, rdb)
		t.Run(strings.Join([]string{kind, value, what}, "/"), func(t *testing.T) {
			if mustFail {
				engineError(t, err, "WRONGTYPE", "another program", true)
			}
		})
		var failed *engine.Error
		switch {
		case errors.As(err, &failed) && !sameDump(before, after):
			t.Errorf("%s with a foreign %s: %v, and changed\nbefore %q\nafter %q", what, kind, err, before, after)
		case before[at] != after[at]:
			t.Errorf("%s changed %s of another program: %q, now %q", what, kind, before[at], after[at])
		}
		if what == "set limit" && err == nil {
			expect.OK(t, o.Set(ctx, sema.Rule{Limit: 1}))
		}
	}
}

func sameDump(a, b map[string]string) bool { return maps.Equal(a, b) }

// Foreign members of the zsets are dropped. The state's own field has the name "",
// so a member "" is neither permit nor ticket.
func TestUnknownMembersAreDropped(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	rdb, e := server.Client(), patientAt(t, server.Addr())
	for _, keys := range [][2]string{{}, {"acme", "acme"}, {"acme", ""}} { // the key of the first ask, and of the others
		for _, zset := range []string{"holders", "waiters"} {
			for _, member := range []string{"", "x"} {
				name := fmt.Sprintf("%q %s %q", keys, zset, member)
				t.Run(name, func(t *testing.T) {
					d := session(t, e, name)
					d.do(protocol.Request{Kind: protocol.SetLimit, Limit: 1, Pin: true})
					ask := func(n uint64) protocol.Status {
						r := d.request(protocol.Ask, n, time.Hour)
						r.Wait, r.Target = true, protocol.ParseTarget(keys[min(n, 2)-1])
						return d.do(r)[0].Status
					}
					want := func(what string, is, want protocol.Status) {
						if is != want {
							t.Errorf("%s: %v, want %v", what, is, want)
						}
					}
					want("the first", ask(1), protocol.Granted)
					want("the second", ask(2), protocol.Queued)
					expect.OK(t, rdb.Do(expect.Within(t), "zadd", "sema:{"+name+"}:"+zset, 0, member).Err())
					want("the third", ask(3), protocol.Queued)
					for n := range uint64(3) {
						st, err := d.State(expect.Within(t))
						expect.OK(t, err)
						if st.Limit != 1 || !st.Pinned || st.Used != 1 || len(st.Waiters) != int(2-n) {
							t.Errorf("before release %d: %+v", n+1, st)
						}
						want("a release", d.do(d.request(protocol.Release, n+1, time.Hour))[0].Status, protocol.Done)
					}
					want("a newcomer", ask(4), protocol.Granted)
				})
			}
		}
	}
}
