package main

import (
	"errors"
	"testing"

	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"sema"
	"sema/engines/redisengine"
	"sema/internal/fixture/child"
	"sema/internal/fixture/expect"
	"sema/internal/fixture/redistest"
)

func TestMain(m *testing.M) {
	child.Play()
	goleak.VerifyTestMain(m)
}

// The process that decides is killed. Another one decides instead, and the limit follows
// what the server takes since.
func TestTheOneThatDecidesIsKilled(t *testing.T) {
	server := redistest.Start(t)
	rdb := redis.NewClient(&redis.Options{Addr: server.Addr(), ContextTimeoutEnabled: true})
	defer func() { _ = rdb.Close() }()
	e, err := redisengine.New(rdb, nil)
	expect.OK(t, err)
	operate := func(name string) *sema.Operator {
		o, err := sema.Operate(e, name)
		expect.OK(t, err)
		t.Cleanup(func() { _ = o.Close() })
		return o
	}
	vendor, control := operate(name), operate(name+"/adapt")
	state := func(o *sema.Operator) sema.State {
		st, err := o.State(expect.Within(t))
		if err != nil && !errors.Is(err, sema.ErrNotFound) {
			t.Fatal(err)
		}
		return st
	}
	v, err := newVendor()
	expect.OK(t, err)
	defer v.close()
	v.set(20)
	callers := map[int]*child.Tested{}
	for range 3 {
		p := child.Run(t, "caller", job{"tcp", server.Addr(), v.url, 10})
		p.Says("calls")
		callers[p.PID()] = p
	}
	limit := 0
	follows := func(least, most int) func() bool {
		return func() bool {
			limit = state(vendor).Limit
			return limit >= least && limit <= most
		}
	}
	expect.Until(t, "the limit follows", follows(17, 23))

	decides := func() (pid int) {
		for _, h := range state(control).Holders {
			pid = h.Client.PID
		}
		return pid
	}
	was := decides()
	if callers[was] == nil {
		t.Fatalf("process %d decides, and is none of ours", was)
	}
	callers[was].Kill()
	delete(callers, was)
	v.set(4)
	expect.Until(t, "another one decides", func() bool { is := decides(); return is != 0 && is != was })
	expect.Until(t, "the limit follows again", follows(3, 6))
	for _, p := range callers {
		p.Ends()
	}
}
