//go:build unix

package redisengine_test

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"sema"
	"sema/internal/fixture/expect"
	"sema/internal/fixture/redistest"
)

// The server is killed, or stopped, while many wait: afterwards all are served,
// and nobody spins. They are served in order if the permit is released after all
// have subscribed again; a waiter without a subscription is passed over.
func TestRecoveryUnderMany(t *testing.T) {
	withData := []string{"--appendonly", "yes"}
	for what, c := range map[string]recovery{
		"clients, killed, with its data":                                 {clients: 10, each: 1, args: withData},
		"clients, killed, with its data, released when all listen again": {clients: 10, each: 1, args: withData, later: true},
		"clients, killed, without data":                                  {clients: 10, each: 1},
		"clients, stopped":                                               {clients: 10, each: 1, stopped: true},
		"clients, stopped, released when all listen again":               {clients: 10, each: 1, stopped: true, later: true},
		"goroutines, killed, with its data":                              {clients: 1, each: 300, args: withData},
		"goroutines, killed, without data":                               {clients: 1, each: 300},
		"goroutines, stopped":                                            {clients: 1, each: 300, stopped: true},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			c.play(t)
		})
	}
}

// recovery is a server that goes away under clients that wait, each with a connection
// of its own, as a process.
type recovery struct {
	clients, each int // each: how many callers of a client wait
	args          []string
	stopped       bool
	later         bool // the permit is released when all clients have subscribed again
}

func (r recovery) play(t *testing.T) {
	server := redistest.Start(t, r.args...)
	rdb := server.Client()
	gate := acquire(t, openSem(t, engineAt(t, server.Addr()), "x", 1, nil))
	type served struct {
		place int
		token int64
	}
	n := r.clients * r.each
	got := make(chan served, n)
	for client := range r.clients {
		waits := openSem(t, engineAt(t, server.Addr()), "x", 1, nil)
		for i := range r.each { // each asks after the one before waits, so their order is certain
			place := client*r.each + i
			go func() {
				p, err := waits.Acquire(expect.Within(t))
				if err != nil {
					t.Error(err)
					got <- served{}
					return
				}
				token := p.Token()
				if err := p.Release(); err != nil {
					t.Error(err)
				}
				got <- served{place, token}
			}()
			expect.Until(t, "queueing", func() bool { return stateOf(t, waits).Waiting() > place })
		}
	}
	steps, connections := load(t, server)

	strike, repair := server.Kill, server.Restart
	if r.stopped {
		strike, repair = server.Stop, server.Continue
	}
	strike()
	var releasing sync.WaitGroup
	release := func() {
		releasing.Go(func() { _ = gate.Release() }) // may return an error; the release is sent when the server is back
	}
	if !r.later {
		release()
	}
	time.Sleep(2 * time.Second) // the fault's duration
	back := time.Now()
	repair()
	if r.later {
		expect.Until(t, "all wait and listen again", func() bool {
			ctx := expect.Within(t)
			tickets, err := rdb.ZRange(ctx, "sema:{x}:waiters", 0, -1).Result()
			expect.OK(t, err)
			for _, id := range tickets {
				client, _, _ := strings.Cut(id, "-")
				inbox := "sema:{x}:inbox:" + client
				listeners, err := rdb.PubSubNumSub(ctx, inbox).Result()
				expect.OK(t, err)
				if listeners[inbox] != 1 { // 2: the old connection is not closed yet
					return false
				}
			}
			return len(tickets) == n
		})
		release()
	}
	var all []served
	for range n {
		all = append(all, <-got)
	}
	releasing.Wait()
	slices.SortFunc(all, func(a, b served) int { return cmp.Compare(a.token, b.token) })
	inOrder := slices.IsSortedFunc(all, func(a, b served) int { return cmp.Compare(a.place, b.place) })
	if !inOrder && (r.later || r.clients == 1) {
		t.Errorf("not in order: %v", all)
	}

	// A waiter asks, connects and subscribes a few times; it does not spin.
	nowSteps, nowConnections := load(t, server)
	if r.stopped { // a new process counts from 0
		nowSteps, nowConnections = nowSteps-steps, nowConnections-connections
	}
	took := time.Since(back)
	clients, perSecond := float64(r.clients), 10*took.Seconds()
	if float64(nowSteps) > clients*(20+perSecond)+float64(5*n) || float64(nowConnections) > clients*(10+perSecond)+20 {
		t.Errorf("%d steps and %d connections for %d waiters of %d clients in %v", nowSteps, nowConnections, n, r.clients, took)
	}
}

// load returns how many steps the server has made, and how many connections.
func load(t *testing.T, server *redistest.Server) (steps, connections int) {
	rdb := server.Client()
	info, err := rdb.Info(expect.Within(t), "stats").Result()
	expect.OK(t, err)
	_, rest, _ := strings.Cut(info, "total_connections_received:")
	_, err = fmt.Sscan(rest, &connections)
	expect.OK(t, err)
	return calls(t, rdb, "evalsha") + calls(t, rdb, "eval"), connections
}

// Close of an unreachable server returns long before the lease ends, which is an hour here.
func TestCloseWithoutAServer(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	open := func(addr, name string) *sema.Semaphore {
		s, err := sema.New(engineAt(t, addr), name, 1, &sema.Options{Lease: time.Hour})
		expect.OK(t, err)
		return s
	}
	held, fresh, nowhere := open(server.Addr(), "held"), open(server.Addr(), "fresh"), open("127.0.0.1:1", "nowhere")
	acquire(t, held)
	server.Stop()
	closed := make(chan error, 3)
	var all sync.WaitGroup
	for _, s := range []*sema.Semaphore{held, fresh, nowhere} {
		all.Go(func() {
			if _, err := s.TryAcquire(expect.Within(t)); !errors.Is(err, sema.ErrEngine) {
				t.Error(err)
			}
			closed <- s.Close()
		})
	}
	within := expect.Within(t)
	for range 3 {
		select {
		case err := <-closed:
			expect.OK(t, err)
		case <-within.Done():
			t.Fatal("a Close waits for its lease")
		}
	}
	all.Wait()
}
