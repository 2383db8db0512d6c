package watch_test

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"sema"
	"sema/engine"
	"sema/engines/redisengine"
	"sema/internal/fixture/expect"
	"sema/internal/fixture/redistest"
	"sema/internal/protocol"
	"sema/watch"
)

// A Watcher sees the semaphores of an engine with other processes.
func TestOnRedis(t *testing.T) {
	client := redistest.Start(t).Client()
	e := ignore(redisengine.New(client, nil))
	t.Cleanup(func() { _ = e.Close() })
	w, err := watch.New(e, &watch.Options{Interval: 20 * time.Millisecond})
	expect.OK(t, err)
	t.Cleanup(w.Close)
	one, all := listen(t, w, watch.Filter{Name: "x"}), listen(t, w, watch.Filter{})
	s := semaphore(t, e, "x", 1, &sema.Options{Label: "job"})
	p := ignore(s.Acquire(t.Context()))
	one.want("limit")
	if got := one.want("granted"); got.Permit != p.ID() || got.Client.Label != "job" {
		t.Errorf("%+v", got)
	}
	all.want("limit", "granted")
	expect.Until(t, "a round with the semaphore", func() bool { // the running one may have begun before
		page, total, err := w.Summaries(t.Context(), watch.Query{Order: "use", N: 5})
		expect.OK(t, err)
		return total == 1 && page[0].Used == 1 && page[0].Holders == 1
	})
	expect.OK(t, p.Release())
	one.want("released")
	all.want("released")
}

// BenchmarkLook measures a look at a semaphore on Redis with many holders, and as many
// waiters.
func BenchmarkLook(b *testing.B) {
	for _, n := range []int{0, 1, 10, 100} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			client := redistest.Start(b).Client()
			e, err := redisengine.New(client, nil)
			expect.OK(b, err)
			defer func() { _ = e.Close() }()
			ctx, cancel := context.WithCancel(context.Background())
			defer cancel()
			queued := make(chan struct{}, 1000)
			s, err := sema.New(e, "x", max(1, n), &sema.Options{Observer: sema.Observer{Queued: func(sema.Event) { queued <- struct{}{} }}})
			expect.OK(b, err)
			defer func() { _ = s.Close() }()
			expect.OK(b, operator(b, e, "x").Set(ctx, sema.Rule{Limit: max(1, n)}))
			for range n {
				if _, err := s.Acquire(ctx); err != nil {
					b.Fatal(err)
				}
			}
			for range n {
				go func() { _, _ = s.Acquire(ctx) }()
				<-queued
			}
			w, err := watch.New(e, nil)
			expect.OK(b, err)
			defer w.Close()
			b.ResetTimer()
			for b.Loop() {
				st, err := w.State(ctx, "x")
				if err != nil || len(st.Holders) != n || len(st.Waiters) != n {
					b.Fatalf("%d holders, %d waiters, %v", len(st.Holders), len(st.Waiters), err)
				}
			}
		})
	}
}

// BenchmarkRound measures a round without a rate limit through 10,000 semaphores on Redis,
// each with one holder: the time of this process and of the server.
func BenchmarkRound(b *testing.B) {
	const semaphores = 10_000
	client := redistest.Start(b).Client()
	e, err := redisengine.New(client, nil)
	expect.OK(b, err)
	defer func() { _ = e.Close() }()
	ctx := context.Background()
	for i := range semaphores {
		raw, err := e.Open(fmt.Sprintf("s%05d", i), engine.Client{Host: "h", PID: 1}, func(protocol.Notification) {})
		expect.OK(b, err)
		id := engine.ID{Client: raw.Client(), Number: 1, Weight: 1}
		if _, err := raw.Step(ctx, protocol.Call{Number: 1, Requests: []protocol.Request{{Kind: protocol.Ask, ID: id, Limit: 3, Lease: time.Hour}}}); err != nil {
			b.Fatal(err)
		}
		_ = raw.Close()
	}
	used := func() (seconds float64) {
		for line := range strings.Lines(client.Info(ctx, "cpu").Val()) {
			if key, value, _ := strings.Cut(strings.TrimSpace(line), ":"); key == "used_cpu_user" || key == "used_cpu_sys" {
				v, err := strconv.ParseFloat(value, 64)
				expect.OK(b, err)
				seconds += v
			}
		}
		return seconds
	}
	before := used()
	for b.Loop() {
		w, err := watch.New(e, &watch.Options{Rate: 1e9})
		expect.OK(b, err)
		page, total, err := w.Summaries(ctx, watch.Query{Order: "use", N: 1})
		if err != nil || total != semaphores || page[0].Used != 1 {
			b.Fatalf("%v %d %v", page, total, err)
		}
		w.Close()
	}
	b.ReportMetric((used()-before)*1e6/float64(b.N)/semaphores, "server-µs/look")
}
