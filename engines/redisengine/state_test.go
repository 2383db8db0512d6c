package redisengine_test

import (
	"context"
	"errors"
	"slices"
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

// readBy sets how many permits and tickets an engine reads in one step.
func readBy(e sema.Engine, n int) sema.Engine {
	e.(*redisengine.Engine).ReadBy(n)
	return e
}

// timeless reads the state, without the values that change with time.
func timeless(t *testing.T, s protocol.Session) engine.State {
	t.Helper()
	st, err := s.State(expect.Within(t))
	expect.OK(t, err)
	for i := range st.Holders {
		h := &st.Holders[i]
		if h.Age < 0 || h.Left <= 0 || h.Left > time.Hour {
			t.Errorf("times of %+v", *h)
		}
		h.Age, h.Left = 0, 0
	}
	for i := range st.Waiters {
		w := &st.Waiters[i]
		if w.Waiting < 0 || w.Waiting > expect.Patience {
			t.Errorf("times of %+v", *w)
		}
		w.Waiting = 0
	}
	return st
}

// many makes requests about permits of the session with consecutive numbers.
func (d *direct) many(kind protocol.Kind, from, n int, lease time.Duration) (rs []protocol.Request) {
	for i := range n {
		r := d.request(kind, uint64(from+i), lease)
		r.Limit, r.Wait = 100, true
		rs = append(rs, r)
	}
	return rs
}

// between calls f after each call of a client.
func between(f func()) redistest.Around {
	return func(...string) func(error) { return func(error) { f() } }
}

// Between the parts of a state, many others come and go at once, all renew with
// different leases, and a waiter is granted. Each client that stays is in the state
// exactly once.
func TestWhoStaysIsInTheState(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	e := patientAt(t, server.Addr())
	const each, most = 100, 400 // how many others come at once, and in all
	holder, waiter, other := session(t, e, "x"), session(t, e, "x"), session(t, e, "x")
	rdb := connect(t, redis.Options{Addr: server.Addr(), ReadTimeout: expect.Patience})
	reader := session(t, readBy(closing(t, rdb), 10), "x")
	limit := func(n int) protocol.Request { return protocol.Request{Kind: protocol.SetLimit, Limit: n} }

	calls, act := 0, func(int) {}
	rdb.AddHook(between(func() { calls++; act(calls) }))
	stay := func(what string, change func(call int)) {
		t.Helper()
		holder.do(limit(each))
		holder.do(holder.many(protocol.Ask, 1, each, time.Hour)...)
		waiter.do(waiter.many(protocol.Ask, 1, each, time.Hour)...)
		calls, act = 0, change
		st, err := reader.State(expect.Within(t))
		expect.OK(t, err)
		act = func(int) {}
		found := map[string]int{}
		for _, h := range st.Holders {
			found[h.ID]++
		}
		for _, w := range st.Waiters {
			found[w.ID]++
		}
		for _, d := range []*direct{holder, waiter} {
			for _, r := range d.many(protocol.Ask, 1, each, time.Hour) {
				if n := found[r.ID.String()]; n != 1 {
					t.Errorf("%s: %s is there %d times", what, r.ID, n)
				}
			}
		}
		if !slices.IsSortedFunc(st.Holders, func(a, b engine.Holder) int { return int(a.Token - b.Token) }) {
			t.Errorf("%s: holders out of order", what)
		}
		if calls < 2*each/10 {
			t.Errorf("%s: read in %d calls", what, calls)
		}
		for d, asked := range map[*direct]int{other: most, waiter: each, holder: each} {
			d.do(d.many(protocol.Release, 1, asked, 0)...)
		}
	}

	stay("nothing changes", func(int) {})
	stay("all renew", func(call int) {
		lease := time.Duration(1+(call*7919)%50) * time.Minute
		holder.do(holder.many(protocol.Renew, 1, each, lease)...)
	})
	stay("others come and go", func(call int) {
		if call%2 == 0 {
			other.do(other.many(protocol.Release, 1, most, 0)...)
		} else {
			other.do(other.many(protocol.Ask, 1, min(call*20, most), time.Hour)...)
		}
	})
	stay("those who wait are served", func(call int) {
		waiter.do(limit(each + 10*call))
	})
	stay("those who wait ask again", func(call int) {
		again := waiter.many(protocol.Ask, 1, each, time.Hour)
		for i := range again {
			again[i].Anew, again[i].Waited = true, time.Duration((i*call)%each)*time.Second
		}
		waiter.do(again...)
	})
}

// State returns between two parts when its context ends.
func TestStateHeedsItsContextBetweenParts(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	holder := session(t, patientAt(t, server.Addr()), "x")
	holder.do(holder.many(protocol.Ask, 1, 100, time.Hour)...)
	for last := 1; last <= 3; last++ {
		rdb := connect(t, redis.Options{Addr: server.Addr(), ReadTimeout: expect.Patience})
		reader := session(t, readBy(closing(t, rdb), 2), "x")
		timeless(t, reader) // makes the connection and loads the script
		ctx, cancel := context.WithCancel(expect.Within(t))
		calls, ended := 0, make(chan int, 100)
		rdb.AddHook(between(func() {
			calls++
			if calls == last {
				cancel()
			}
			ended <- calls
		}))
		_, err := reader.State(ctx)
		var failed *engine.Error
		if !errors.As(err, &failed) || !failed.NotExecuted || !errors.Is(failed.Err, context.Canceled) {
			t.Errorf("cancelled after call %d: %v", last, err)
		}
		for n := 0; n < last; {
			n = <-ended
		}
		expect.OK(t, reader.Close())
		if n := len(ended); n > 0 {
			t.Errorf("cancelled after call %d, and went on for %d", last, n)
		}
	}
}
