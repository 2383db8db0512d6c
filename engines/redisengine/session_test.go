package redisengine_test

import (
	"context"
	"errors"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"sema"
	"sema/engine"
	"sema/engines/redisengine"
	"sema/internal/fixture/expect"
	"sema/internal/fixture/redistest"
	"sema/internal/protocol"
)

// New refuses clients that cannot keep semaphores.
func TestNewRefuses(t *testing.T) {
	rdb := redis.NewClient(&redis.Options{})
	t.Cleanup(func() { _ = rdb.Close() })
	ring := redis.NewRing(&redis.RingOptions{})
	t.Cleanup(func() { _ = ring.Close() })
	var none *redis.Client
	for what, c := range map[string]struct {
		rdb redis.UniversalClient
		o   *redisengine.Options
	}{
		"nil":             {nil, nil},
		"a nil *Client":   {none, nil},
		"a *Ring":         {ring, nil},
		"a brace":         {rdb, &redisengine.Options{Prefix: "a{b"}},
		"a control sign":  {rdb, &redisengine.Options{Prefix: "a\nb"}},
		"what is no UTF8": {rdb, &redisengine.Options{Prefix: "\xff"}},
	} {
		var refused *engine.ArgumentError
		if e, err := redisengine.New(c.rdb, c.o); !errors.As(err, &refused) || e != nil {
			t.Errorf("%s: %v, %v", what, e, err)
		}
	}
}

// Engines with different prefixes do not see each other's semaphores.
func TestPrefixes(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	ctx := expect.Within(t)
	var tokens []int64
	for _, prefix := range []string{"", "a:", "a*:", "[a]?", `a\:`} {
		e, err := redisengine.New(connect(t, redis.Options{Addr: server.Addr()}), &redisengine.Options{Prefix: prefix})
		expect.OK(t, err)
		t.Cleanup(func() { _ = e.Close() })
		s := openSem(t, e, "x", 1, nil)
		p := acquire(t, s)
		w := queue(t, s)
		if names, err := e.List(ctx); err != nil || !slices.Equal(names, []string{"x"}) {
			t.Errorf("prefix %q: listed %q, %v", prefix, names, err)
		}
		expect.OK(t, p.Release())
		tokens = append(tokens, p.Token())
		expect.OK(t, w.permit(t).Release())
		if prefix == "" {
			prefix = "sema:"
		}
		if n := server.Client().Exists(ctx, prefix+"{x}:state").Val(); n != 1 {
			t.Errorf("prefix %q: no state there", prefix)
		}
	}
	if len(slices.Compact(tokens)) != 5 {
		t.Errorf("tokens %v", tokens)
	}
}

// blocker is a dialer that can hang for ever. Behind a firewall that drops
// packets, a dialer hangs for a long time.
type blocker struct {
	mu   sync.Mutex
	shut chan struct{} // nil: dial at once
}

func (b *blocker) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	b.mu.Lock()
	shut := b.shut
	b.mu.Unlock()
	if shut != nil {
		<-shut // whatever ctx says
	}
	return (&net.Dialer{}).DialContext(context.WithoutCancel(ctx), network, addr)
}

func (b *blocker) block() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.shut = make(chan struct{})
}

func (b *blocker) free() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.shut != nil {
		close(b.shut)
	}
	b.shut = nil
}

// The connection for subscriptions hangs: steps and Close still return. When it
// is made at last, the waiter is told to ask.
func TestASubscriptionHangs(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	var b blocker
	t.Cleanup(b.free)
	rdb := connect(t, redis.Options{Addr: server.Addr(), Dialer: b.dial, DialerRetries: 1, DialTimeout: time.Hour, ReadTimeout: expect.Patience})
	e := closing(t, rdb)
	s, other := session(t, e, "x"), session(t, e, "y")
	ask := func(s *direct, number uint64) protocol.Answer {
		r := s.request(protocol.Ask, number, time.Minute)
		r.Wait = true
		return s.do(r)[0]
	}
	_, err := s.State(expect.Within(t)) // makes the connection for calls
	expect.OK(t, err)
	b.block()
	for _, s := range []*direct{s, other} {
		if a := ask(s, 1); a.Status != protocol.Granted {
			t.Fatalf("free, and %+v", a)
		}
	}
	for _, s := range []*direct{s, other, s} {
		if a := ask(s, 2); a.Status != protocol.Queued {
			t.Errorf("nobody listens yet: %+v; want it queued", a)
		}
	}
	closed := closing(t, rdb)
	third := session(t, closed, "x")
	ask(third, 1)
	expect.OK(t, third.Close())
	expect.OK(t, closed.Close())
	b.free()
	for n := range s.told {
		if n.Ask {
			break
		}
	}
	s.do(s.request(protocol.Release, 1, 0)) // hands over
	if a := ask(s, 2); a.Status != protocol.Granted {
		t.Errorf("after the hand-off: %+v", a)
	}
}

// The server is stopped, and the client has no timeouts: Step returns when its
// context ends, with an unknown outcome.
func TestContextsAreHeeded(t *testing.T) {
	t.Parallel()
	for what, wireDeadlines := range map[string]bool{"a client that ends calls at deadlines": true, "one that does not": false} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			server := redistest.Start(t)
			proxy := redistest.StartProxy(t, server.Addr())
			rdb := redis.NewClient(&redis.Options{Addr: proxy.Addr(), ContextTimeoutEnabled: wireDeadlines, ReadTimeout: -1, WriteTimeout: -1})
			t.Cleanup(func() { _ = rdb.Close() })
			s := session(t, closing(t, rdb), "x")
			s.do(s.request(protocol.Ask, 1, time.Minute))
			proxy.Silence()
			t.Cleanup(proxy.Resume)
			for _, timed := range []bool{true, false, false} {
				ctx, cancel := context.WithCancel(context.Background())
				if timed {
					within, stop := context.WithTimeout(context.Background(), 200*time.Millisecond)
					defer stop()
					ctx = &protocol.Timed{Context: within}
				}
				time.AfterFunc(200*time.Millisecond, cancel) // by then the call is sent
				_, err := s.try(ctx, s.request(protocol.Renew, 1, time.Minute))
				var failed *engine.Error
				if !errors.As(err, &failed) || failed.NotExecuted {
					t.Errorf("cancelled: %v", err)
				}
			}
			ctx, cancel := context.WithCancel(context.Background())
			cancel()
			if _, err := s.State(ctx); err == nil {
				t.Error("a state from a server that stands still")
			}
		})
	}
}

// A copy of a call that arrives after a fence changes nothing, and gets
// errFenced.
func TestALateCallChangesNothing(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	rdb := server.Client()
	s := session(t, patientAt(t, server.Addr()), "x")
	set := func(number uint64, fence bool, limit int) error {
		_, err := s.Step(whole, protocol.Call{Number: number, Fence: fence, Requests: []protocol.Request{{Kind: protocol.SetLimit, Limit: limit}}})
		return err
	}
	expect.OK(t, set(1, false, 3))
	expect.OK(t, set(3, true, 10))
	before := dump(t, rdb)
	var late *engine.Error
	if err := set(2, false, 3); !errors.As(err, &late) || !late.NotExecuted || !late.Temporary {
		t.Errorf("late: %v", err)
	}
	if !sameDump(before, dump(t, rdb)) {
		t.Error("a late call changed something")
	}
	expect.OK(t, set(4, false, 11))
	other := session(t, patientAt(t, server.Addr()), "x")
	if a := other.do(other.request(protocol.Ask, 1, time.Minute))[0]; a.Status != protocol.Granted {
		t.Errorf("another session, beside the fence: %+v", a)
	}
	if list := eternal(t, rdb); len(list) > 0 {
		t.Errorf("no time to live: %v", list)
	}
}

// "Lua unpack fails at about 8,000 values" (node redis-semaphore, Redisson):
// here one call may have many times that number of requests, and so many leases
// may end at once.
func TestThousandsInOneCall(t *testing.T) {
	t.Parallel()
	const n = 9000
	s := session(t, patientAt(t, redistest.Start(t).Addr()), "x")
	call := func(kind protocol.Kind, lease time.Duration) (all []protocol.Request) {
		for i := range n {
			r := s.request(kind, uint64(i), lease)
			r.Limit, r.Wait = n/2, true
			all = append(all, r)
		}
		return all
	}
	// A context that never ends: so many requests take long. A call of a Semaphore has
	// 500 requests at most.
	do := func(rs []protocol.Request) []protocol.Answer {
		reply, err := s.try(context.Background(), rs...)
		expect.OK(t, err)
		return reply.Answers
	}
	count := func(answers []protocol.Answer, status protocol.Status) (n int) {
		for _, a := range answers {
			if a.Status == status {
				n++
			}
		}
		return n
	}
	if granted := count(do(call(protocol.Ask, time.Hour)), protocol.Granted); granted != n/2 {
		t.Errorf("granted %d, want %d", granted, n/2)
	}
	if renewed := count(do(call(protocol.Renew, time.Millisecond)), protocol.Granted); renewed != n/2 {
		t.Errorf("renewed %d, want %d", renewed, n/2)
	}
	expect.Until(t, "the end of all leases", func() bool {
		st, err := s.State(expect.Within(t))
		expect.OK(t, err)
		return st.Used == 0
	})
	if granted := count(do(call(protocol.Ask, time.Minute)), protocol.Granted); granted > n/2 {
		t.Errorf("granted %d, of %d", granted, n/2)
	}
	do(call(protocol.Renew, time.Minute))
	do(call(protocol.Release, 0))
	st, err := s.State(expect.Within(t))
	expect.OK(t, err)
	if st.Used != 0 || len(st.Holders) != 0 || len(st.Waiters) != 0 {
		t.Errorf("after all: %d used, %d holders, %d waiters", st.Used, len(st.Holders), len(st.Waiters))
	}
}

// The first call with a waiting ask keeps the order, too: a light ask does not
// overtake an earlier heavy one, whether it may wait or not.
func TestTheFirstWaitKeepsTheOrder(t *testing.T) {
	t.Parallel()
	e := patientAt(t, redistest.Start(t).Addr())
	ask := func(d *direct, number uint64, weight int, wait bool) protocol.Request {
		r := d.request(protocol.Ask, number, time.Minute)
		r.ID.Weight, r.Limit, r.Wait = weight, 2, wait
		return r
	}
	holder, d := session(t, e, "x"), session(t, e, "x")
	holder.do(ask(holder, 1, 1, false))
	got := d.do(ask(d, 1, 2, true), ask(d, 2, 1, true), ask(d, 3, 1, false))
	if got[0].Status != protocol.Queued || got[1].Status != protocol.Queued || got[2].Status != protocol.Refused {
		t.Errorf("%+v", got)
	}
}

// The error of a call without a connection is one line.
func TestNoConnectionInTimeIsOneLine(t *testing.T) {
	t.Parallel()
	rdb := connect(t, redis.Options{Addr: redistest.Start(t).Addr(), PoolSize: 1})
	s := session(t, closing(t, rdb), "x")
	taken := rdb.Conn()
	defer func() { _ = taken.Close() }()
	expect.OK(t, taken.Ping(t.Context()).Err())
	within, cancel := context.WithTimeout(context.Background(), 10*time.Millisecond)
	defer cancel()
	_, err := s.try(&protocol.Timed{Context: within}, s.request(protocol.Ask, 1, time.Minute))
	engineError(t, err, "no connection in time: context deadline exceeded", "PoolSize", true)
	if err != nil && strings.Contains(err.Error(), "\n") {
		t.Errorf("%q", err)
	}
}

// A holder hears at once that its permit was revoked, though it never waited for one.
func TestAHolderThatNeverWaitedHearsOfARevocation(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	p := acquire(t, openSem(t, engineAt(t, server.Addr()), "x", 1, &sema.Options{Lease: 10 * time.Minute})) // renewed only after the test's patience
	ctx := expect.Within(t)
	work := p.Context(ctx)
	expect.Until(t, "the subscription", func() bool { return len(server.Client().PubSubChannels(ctx, "*").Val()) == 1 })
	o, err := sema.Operate(engineAt(t, server.Addr()), "x")
	expect.OK(t, err)
	expect.OK(t, o.Revoke(ctx, p.ID()))
	<-work.Done()
	expect.Is(t, context.Cause(work), sema.ErrRevoked)
	expect.OK(t, o.Close())
}
