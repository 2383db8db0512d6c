package redisengine_test

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"sema"
	"sema/engine"
	"sema/internal/fixture/expect"
	"sema/internal/fixture/redistest"
	"sema/internal/protocol"
)

const (
	mostTurns   = 32  // tickets that a step grants or drops: see lua/layout.lua
	mostEnds    = 128 // leases that a step ends
	largestCall = 512 // requests that a client sends in one call
	eachClient  = 100 // tickets of each client in a crowd
)

// crowd is many clients with many tickets on one semaphore, below package sema,
// as of a thousand processes. Neighbours in the queue belong to different
// clients. That costs a step most, because each client gets a message of its
// own.
type crowd struct {
	takes   []engine.Pools // what the keys take of pools
	pools   engine.Pools
	t       testing.TB
	rdb     *redis.Client
	server  *redistest.Server
	name    string
	began   time.Time
	pid     int // of the server; 0: do not measure
	keys    int // number of keys; neighbours in the queue have different ones
	orgs    int // if above 0: the keys are users of so many organisations
	clients []*direct
	told    chan told
	scripts atomic.Int64          // number of script runs
	ran     []time.Duration       // the server's time for each call
	held    map[engine.ID]*direct // the permits that the clients know of
	waits   map[*direct][]engine.ID
}

type told struct {
	who *direct
	protocol.Notification
}

func newCrowd(t testing.TB, size int) *crowd {
	server := redistest.Start(t)
	c := &crowd{
		t: t, server: server, rdb: server.Client(), name: "x", began: time.Now(), told: make(chan told, 20*size+10_000),
		held: map[engine.ID]*direct{}, waits: map[*direct][]engine.ID{},
	}
	e := c.engine()
	for range size / eachClient {
		d := &direct{t: t}
		var err error
		d.Session, err = e.Open(c.name, engine.Client{Host: "test", PID: 1}, func(n protocol.Notification) { c.told <- told{d, n} })
		expect.OK(t, err)
		c.clients = append(c.clients, d)
	}
	if os.Getenv("SEMA_BOUNDS") == "" {
		return c
	}
	info, err := c.rdb.InfoMap(expect.Within(t), "server").Result()
	expect.OK(t, err)
	c.pid, err = strconv.Atoi(info["Server"]["process_id"])
	expect.OK(t, err)
	// The slow log also records the commands within a script, and recording all
	// would cost time.
	expect.OK(t, c.rdb.ConfigSet(expect.Within(t), "slowlog-log-slower-than", "200").Err())
	expect.OK(t, c.rdb.ConfigSet(expect.Within(t), "slowlog-max-len", "100000").Err())
	return c
}

// engine returns an engine with such long timeouts that a stalled machine ends
// no call. Its steps are counted. A call takes two if its session has no subscription yet.
func (c *crowd) engine() sema.Engine {
	rdb := connect(c.t, redis.Options{Addr: c.server.Addr(), ReadTimeout: expect.Patience, WriteTimeout: expect.Patience})
	rdb.AddHook(redistest.Around(func(commands ...string) func(error) {
		return func(err error) {
			if name := commands[0]; err == nil && len(commands) == 1 && (name == "evalsha" || name == "eval") {
				c.scripts.Add(1)
			}
		}
	}))
	return closing(c.t, rdb)
}

// step makes one call of one client, and notes the grants and the notification
// in the reply.
func (c *crowd) step(d *direct, rs ...protocol.Request) protocol.Reply {
	c.t.Helper()
	stop := c.watch()
	reply, err := d.try(context.Background(), rs...)
	expect.OK(c.t, err)
	stop()
	for i, a := range reply.Answers {
		if rs[i].Kind == protocol.Ask && a.Status == protocol.Granted {
			c.granted(d, rs[i].ID)
		}
	}
	if len(c.hear(told{d, reply.Notification})) > 0 {
		c.told <- told{d, protocol.Notification{Ask: true}}
	}
	return reply
}

// watch measures the server's time until stop is called.
func (c *crowd) watch() (stop func()) {
	if c.pid == 0 {
		return func() {}
	}
	began := threadTime(c.pid)
	return func() { c.ran = append(c.ran, threadTime(c.pid)-began) }
}

func (c *crowd) granted(d *direct, id engine.ID) {
	c.held[id] = d
	c.waits[d] = slices.DeleteFunc(c.waits[d], func(other engine.ID) bool { return other == id })
}

// hear handles a notification. It returns the tickets for which its client must ask now: all of them, or
// one.
func (c *crowd) hear(n told) []engine.ID {
	for _, g := range n.Grants {
		c.granted(n.who, g.ID)
	}
	waits := c.waits[n.who]
	if n.Ask {
		return waits
	}
	if n.Recheck == protocol.AtOnce && len(waits) > 0 {
		return waits[:1]
	}
	return nil
}

// ask returns an ask with a place such that neighbours in the queue belong to
// different clients, regardless of when the calls arrive.
func (c *crowd) ask(client, number int, lease time.Duration) protocol.Request {
	d := c.clients[client]
	r := d.request(protocol.Ask, uint64(number), lease)
	r.Wait, r.Ticket, r.Limit = true, lease, len(c.clients)*eachClient
	if c.keys > 0 {
		user := (number*len(c.clients) + client) % c.keys
		r.Key = engine.Key(fmt.Sprint("key ", user))
		if c.orgs > 0 {
			r.Key = engine.Key(fmt.Sprint("org ", user%c.orgs, engine.KeySeparator)) + r.Key
		}
		if len(c.takes) > 0 {
			r.Takes, r.Pools = c.takes[user%len(c.takes)], c.pools
		}
	}
	r.Waited = time.Since(c.began) + time.Hour - time.Duration(number*len(c.clients)+client)*10*time.Millisecond
	return r
}

// askAll makes one call of every client, which asks for all its tickets; from is
// the number of the first.
func (c *crowd) askAll(from int, lease func() time.Duration) {
	for client, d := range c.clients {
		var asks []protocol.Request
		life := lease()
		for n := range eachClient {
			asks = append(asks, c.ask(client, from+n, life))
			c.waits[d] = append(c.waits[d], asks[n].ID)
		}
		c.step(d, asks...)
	}
}

func (c *crowd) queued() int {
	n := c.rdb.ZCard(context.Background(), "sema:{x}:waiters").Val()
	if c.keys > 0 {
		n += c.rdb.ZCard(context.Background(), "sema:{x}:lines").Val()
	}
	return int(n)
}

func (c *crowd) holders() int {
	return int(c.rdb.ZCard(context.Background(), "sema:{x}:holders").Val()) - 1 // without KEEPER
}

// goOn makes the calls of the clients that were told to ask, one after the
// other, until done. Each step does a part of the work and notifies a client
// that goes on. No step may do more than the bound allows.
func (c *crowd) goOn(what string, done func() bool) (steps int) {
	c.t.Helper()
	before := c.scripts.Load()
	for !done() {
		select {
		case n := <-c.told:
			ids := c.hear(n)
			if len(ids) == 0 {
				continue
			}
			queued, holders := c.queued(), c.holders()
			var again []protocol.Request
			for _, id := range ids {
				r := n.who.request(protocol.Ask, id.Number, time.Hour)
				r.Wait, r.Again, r.Ticket = true, true, time.Hour
				again = append(again, r)
			}
			made := c.scripts.Load()
			c.step(n.who, again...)
			made = c.scripts.Load() - made
			if turns := queued - c.queued(); turns > int(made)*mostTurns+len(again) {
				c.t.Errorf("%s: %d steps took %d tickets off the queue", what, made, turns)
			}
			if ended := holders - c.holders(); ended > int(made)*mostEnds {
				c.t.Errorf("%s: %d steps ended %d leases", what, made, ended)
			}
		case <-time.After(expect.Patience):
			c.t.Fatalf("%s: nobody goes on; %d wait, %d hold", what, c.queued(), c.holders())
		}
	}
	return int(c.scripts.Load() - before)
}

// measured prints the server's time for scripts during f. One figure is by the
// server's own clock, which also counts waits for the processor. The other is
// the processor time of one call, with all the messages that it sent.
func (c *crowd) measured(what string, f func()) {
	c.t.Helper()
	if c.pid == 0 {
		f()
		return
	}
	ctx := expect.Within(c.t)
	expect.OK(c.t, c.rdb.Do(ctx, "SLOWLOG", "RESET").Err())
	expect.OK(c.t, c.rdb.ConfigResetStat(ctx).Err())
	c.ran = nil
	f()
	ctx = expect.Within(c.t) // f may have used up the time of the first one
	slow, err := c.rdb.SlowLogGet(ctx, -1).Result()
	expect.OK(c.t, err)
	var times []time.Duration
	for _, entry := range slow {
		if strings.HasPrefix(strings.ToLower(entry.Args[0]), "eval") {
			times = append(times, entry.Duration)
		}
	}
	slices.Sort(times)
	calls, usec := 0, 0
	stats, err := c.rdb.InfoMap(ctx, "commandstats").Result()
	expect.OK(c.t, err)
	for name, value := range stats["Commandstats"] {
		var n, us int
		if strings.HasPrefix(name, "cmdstat_eval") {
			_, err := fmt.Sscanf(value, "calls=%d,usec=%d", &n, &us)
			expect.OK(c.t, err)
		}
		calls, usec = calls+n, usec+us
	}
	longest := "below 0.20 ms"
	if len(times) > 0 {
		longest = millis(times[len(times)-1])
	}
	c.t.Logf("%-46s %5d steps, mean %s, longest %s%s", what, calls,
		millis(time.Duration(usec)*time.Microsecond/time.Duration(max(1, calls))), longest, c.running())
}

// running returns the server's processor time for a call.
func (c *crowd) running() string {
	if len(c.ran) == 0 {
		return ""
	}
	slices.Sort(c.ran)
	n := len(c.ran)
	text := fmt.Sprintf("; the server ran for %s", millis(c.ran[n/2]))
	if n >= 100 {
		text += ", 99 of 100 times below " + millis(c.ran[n*99/100])
	}
	return text + ", at most " + millis(c.ran[n-1])
}

func millis(d time.Duration) string { return fmt.Sprintf("%.2f ms", float64(d)/1e6) }

// snapshot measures how long a snapshot blocks the server: the time of one
// part, that is, of one pipeline.
func (c *crowd) snapshot(what string, holders, waiters int) {
	c.t.Helper()
	rdb := connect(c.t, redis.Options{Addr: c.server.Addr(), ReadTimeout: expect.Patience, WriteTimeout: expect.Patience})
	expect.OK(c.t, rdb.Ping(expect.Within(c.t)).Err()) // so that the connection is there
	rdb.AddHook(redistest.Around(func(...string) func(error) {
		stop := c.watch()
		return func(error) { stop() }
	}))
	d := session(c.t, closing(c.t, rdb), c.name)
	c.measured(what, func() {
		began := time.Now()
		st, err := d.State(expect.Within(c.t))
		expect.OK(c.t, err)
		if len(st.Holders) != holders || len(st.Waiters) != waiters {
			c.t.Errorf("%d hold and %d wait; want %d and %d", len(st.Holders), len(st.Waiters), holders, waiters)
		}
		if c.pid == 0 {
			return
		}
		total := time.Duration(0)
		for _, part := range c.ran {
			total += part
		}
		c.t.Logf("%s: %d parts, for which the server ran %s in all; it took %s", what, len(c.ran), millis(total), millis(time.Since(began)))
	})
}
