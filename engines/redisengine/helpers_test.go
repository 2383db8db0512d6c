package redisengine_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"sema"
	"sema/engine"
	"sema/internal/fixture/expect"
	"sema/internal/fixture/opened"
	"sema/internal/protocol"
)

// The suites open thousands of clients. By default, go-redis allocates 32 KiB for
// each direction of a connection, and 200 KiB for messages about maintenance,
// which only Redis Enterprise sends.
const buffer = 4 << 10

func noNews() *maintnotifications.Config {
	return &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
}

// connect makes a go-redis client that ends a call at its context's deadline.
func connect(t testing.TB, o redis.Options) *redis.Client {
	o.ContextTimeoutEnabled, o.ReadBufferSize, o.WriteBufferSize, o.MaintNotificationsConfig = true, buffer, buffer, noNews()
	rdb := redis.NewClient(&o)
	t.Cleanup(func() {
		_ = rdb.Close()
		rdb = nil // as in closing
	})
	return rdb
}

// patientAt returns an engine with long timeouts, for tests that call sessions
// directly: they do not repeat a call that failed because the machine stood
// still.
func patientAt(t testing.TB, addr string) sema.Engine {
	return closing(t, connect(t, redis.Options{Addr: addr, ReadTimeout: expect.Patience, WriteTimeout: expect.Patience}))
}

// engineAt returns an engine with a client of its own, as in another process.
func engineAt(t testing.TB, addr string) sema.Engine {
	return closing(t, connect(t, redis.Options{Addr: addr}))
}

func openSem(t testing.TB, e sema.Engine, name string, limit int, o *sema.Options) *sema.Semaphore {
	t.Helper()
	s, err := sema.New(e, name, limit, o)
	expect.OK(t, err)
	t.Cleanup(func() {
		_ = s.Close()
		s = nil // as in closing
	})
	return s
}

// operator returns an operator of a semaphore.
var operator = opened.Operator

func acquire(t testing.TB, s *sema.Semaphore) *sema.Permit {
	t.Helper()
	p, err := s.Acquire(expect.Within(t))
	expect.OK(t, err)
	return p
}

// waiting is an acquisition in the background.
type waiting struct {
	got    chan *sema.Permit // the permit, or nil
	err    error             // set before got is sent to
	cancel context.CancelFunc
}

func start(t testing.TB, s *sema.Semaphore, options ...sema.AcquireOption) *waiting {
	ctx, cancel := context.WithCancel(expect.Within(t))
	w := &waiting{got: make(chan *sema.Permit, 1), cancel: cancel}
	go func() {
		var p *sema.Permit
		p, w.err = s.Acquire(ctx, options...)
		w.got <- p
	}()
	return w
}

// queue starts an acquisition and returns when its ticket is in the queue.
func queue(t testing.TB, s *sema.Semaphore, options ...sema.AcquireOption) *waiting {
	t.Helper()
	before := stateOf(t, s)
	w := start(t, s, options...)
	expect.Until(t, "queueing", func() bool { return len(stateOf(t, s).Waiters) > len(before.Waiters) })
	return w
}

func (w *waiting) permit(t testing.TB) *sema.Permit {
	t.Helper()
	p := <-w.got
	if p == nil {
		t.Fatalf("waiting ended with %v", w.err)
	}
	return p
}

func stateOf(t testing.TB, s *sema.Semaphore) sema.State {
	t.Helper()
	st, err := s.State(expect.Within(t))
	expect.OK(t, err)
	return st
}

// wholeLimit checks that the whole limit is free, or becomes free when the
// leases of dead clients end, and that the queue is empty.
func wholeLimit(t testing.TB, s *sema.Semaphore, limit int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(expect.Within(t), expect.Patience/2)
	defer cancel()
	p, err := s.Acquire(ctx, sema.Weight(limit))
	if err != nil {
		t.Fatalf("the limit of %d does not come free: %v; %+v", limit, err, stateOf(t, s))
	}
	expect.OK(t, p.Release())
}

// dump returns each key with its content and its absolute expiry.
func dump(t testing.TB, rdb redis.UniversalClient) map[string]string {
	t.Helper()
	ctx := expect.Within(t)
	all, err := rdb.Keys(ctx, "*").Result()
	expect.OK(t, err)
	content := map[string]string{}
	for _, k := range all {
		value, err := rdb.Dump(ctx, k).Result()
		expect.OK(t, err)
		end, err := rdb.Do(ctx, "PEXPIRETIME", k).Int64()
		expect.OK(t, err)
		content[k] = fmt.Sprint(end, value)
	}
	return content
}

// eternal lists the keys without a time to live.
func eternal(t testing.TB, rdb redis.UniversalClient) []string {
	t.Helper()
	ctx := expect.Within(t)
	all, err := rdb.Keys(ctx, "*").Result()
	expect.OK(t, err)
	var list []string
	for _, k := range all {
		ttl, err := rdb.PTTL(ctx, k).Result()
		expect.OK(t, err)
		if ttl == -1 {
			list = append(list, k)
		}
	}
	slices.Sort(list)
	return list
}

// engineError checks the class of an error: its hint, and whether it says that
// nothing was executed.
func engineError(t testing.TB, err error, word, hint string, notExecuted bool) {
	t.Helper()
	var e *engine.Error
	if !errors.As(err, &e) {
		t.Fatalf("error %v (%T); want a *engine.Error with %s", err, err, word)
	}
	if !strings.Contains(e.Err.Error(), word) || !strings.Contains(e.Hint, hint) || e.NotExecuted != notExecuted {
		t.Errorf("error %q, hint %q, not executed %v; want %s, %q, %v", e.Err, e.Hint, e.NotExecuted, word, hint, notExecuted)
	}
}

// calls returns how often the server has carried out a command.
func calls(t testing.TB, rdb *redis.Client, command string) int {
	t.Helper()
	info, err := rdb.Info(expect.Within(t), "commandstats").Result()
	expect.OK(t, err)
	for line := range strings.Lines(info) {
		if rest, ok := strings.CutPrefix(line, "cmdstat_"+command+":calls="); ok {
			n := 0
			_, err := fmt.Sscanf(rest, "%d", &n)
			expect.OK(t, err)
			return n
		}
	}
	return 0
}

// connections lists the server's connections, without the one that asks.
func connections(t testing.TB, rdb *redis.Client) []string {
	t.Helper()
	list, err := rdb.ClientList(expect.Within(t)).Result()
	expect.OK(t, err)
	var others []string
	for line := range strings.Lines(list) {
		if !strings.Contains(line, "cmd=client|list") {
			others = append(others, line)
		}
	}
	return others
}

// direct is a session used directly, without package sema: it makes no calls by
// itself.
type direct struct {
	protocol.Session
	t      testing.TB
	number uint64
	told   chan protocol.Notification
}

func session(t testing.TB, e sema.Engine, name string) *direct {
	t.Helper()
	d := &direct{t: t, told: make(chan protocol.Notification, 1000)}
	var err error
	d.Session, err = e.Open(name, engine.Client{Host: "test", PID: 1}, func(n protocol.Notification) { d.told <- n })
	expect.OK(t, err)
	t.Cleanup(func() { _ = d.Close() })
	return d
}

// request makes a request about a permit of the session.
func (d *direct) request(kind protocol.Kind, number uint64, lease time.Duration) protocol.Request {
	id := engine.ID{Client: d.Client(), Number: number, Weight: 1}
	return protocol.Request{Kind: kind, ID: id, Limit: 1, Lease: lease, Ticket: lease / 2}
}

func (d *direct) try(ctx context.Context, rs ...protocol.Request) (protocol.Reply, error) {
	d.number++
	return d.Step(ctx, protocol.Call{Number: d.number, Requests: rs})
}

// whole is the context of steps that nobody repeats. It cannot be cancelled, so only
// the client's timeouts bound the call.
var whole = context.Background()

func (d *direct) do(rs ...protocol.Request) []protocol.Answer {
	d.t.Helper()
	reply, err := d.try(whole, rs...)
	expect.OK(d.t, err)
	return reply.Answers
}
