package redisengine_test

import (
	"fmt"
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

// The server's time for each step of the table in docs/data/redis.md, in µs, lowest and
// median of b.N rounds: go test -run xxx -bench ServerTime -benchtime 200x. A short
// step is made twenty times in a round.
func BenchmarkServerTime(b *testing.B) {
	server := redistest.Start(b)
	rdb := server.Client()
	times := map[string][]float64{}
	for b.Loop() {
		expect.OK(b, rdb.FlushDB(expect.Within(b)).Err())
		e := engineAt(b, server.Addr())
		measured := func(what string, n int, f func(i int)) {
			expect.OK(b, rdb.ConfigResetStat(expect.Within(b)).Err())
			for i := range n {
				f(i)
			}
			times[what] = append(times[what], perCall(b, rdb))
		}
		one := func(s *direct, kind protocol.Kind, limit, from, n int) {
			var rs []protocol.Request
			for i := range n {
				r := s.request(kind, uint64(from+i), 30*time.Second)
				r.Limit, r.Wait = limit, true
				rs = append(rs, r)
			}
			for i, a := range s.do(rs...) {
				if a.Status != protocol.Granted && a.Status != protocol.Queued && a.Status != protocol.Done {
					b.Fatalf("%+v: status %d", rs[i], a.Status)
				}
			}
		}
		wide := session(b, e, "wide")
		one(wide, protocol.Ask, engine.MaxLimit, 1, 1)
		for i, what := range []string{"acquire", "renew", "release"} {
			kind := protocol.Ask + protocol.Kind(i)
			measured(what, 20, func(i int) { one(wide, kind, engine.MaxLimit, 10+i, 1) })
			for _, n := range []int{64, 512} {
				measured(fmt.Sprint(what, "-", n), 1, func(int) { one(wide, kind, engine.MaxLimit, 1000*n, n) })
			}
		}
		for what, script := range bare {
			expect.OK(b, script.Load(expect.Within(b), rdb).Err())
			measured(what, 20, func(int) {
				err := script.EvalSha(expect.Within(b), rdb, []string{"bare:state", "bare:holders"}, "abcdefghij.1-10-1").Err()
				if err != redis.Nil {
					expect.OK(b, err)
				}
			})
		}
		holder, waiter := session(b, e, "narrow"), session(b, e, "narrow")
		one(holder, protocol.Ask, 1, 1, 1)
		one(waiter, protocol.Ask, 1, 1, 1) // it subscribes
		measured("join", 20, func(i int) { one(waiter, protocol.Ask, 1, 2+i, 1) })
		one(holder, protocol.Release, 1, 1, 1)
		measured("hand-off", 20, func(i int) { one(waiter, protocol.Release, 1, 1+i, 1) })
		one(waiter, protocol.Release, 1, 21, 1)
		one(holder, protocol.Ask, 1, 2, 1)
		for _, n := range []int{64, 512} {
			measured(fmt.Sprint("join-", n), 1, func(int) { one(waiter, protocol.Ask, 1, 1000*n, n) })
		}
		expect.OK(b, e.Close())
	}
	for what, all := range times {
		slices.Sort(all)
		b.ReportMetric(all[0], what+"-µs")
		b.ReportMetric(all[len(all)/2], what+"-median-µs")
	}
}

// bare is the lower bound for a plain acquire and release: the commands that each of
// them runs, without the decisions.
var bare = map[string]*redis.Script{
	"no-op": redis.NewScript(`return 1`),
	"commands-of-acquire": redis.NewScript(`
		redis.call('TIME')
		redis.call('HGET', KEYS[1], '')
		redis.call('ZADD', KEYS[2], 'NX', '1795405999999999', ARGV[1])
		redis.call('HSET', KEYS[1], '', '` + strings.Repeat("x", 100) + `', ARGV[1], 'hxxxxxxxxxxxxxxxxxxxxxxxx')
		return 'xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx'`),
	"commands-of-release": redis.NewScript(`
		redis.call('TIME')
		redis.call('HGET', KEYS[1], '')
		redis.call('ZREM', KEYS[2], ARGV[1])
		redis.call('HDEL', KEYS[1], ARGV[1])
		redis.call('HSET', KEYS[1], '', '` + strings.Repeat("x", 100) + `')
		return 'xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx'`),
}

// perCall is the mean time of a run of the script, in µs, since the statistics
// were reset.
func perCall(b *testing.B, rdb *redis.Client) (us float64) {
	info, err := rdb.Info(expect.Within(b), "commandstats").Result()
	expect.OK(b, err)
	_, rest, _ := strings.Cut(info, "cmdstat_evalsha:")
	_, rest, _ = strings.Cut(rest, "usec_per_call=")
	_, err = fmt.Sscanf(rest, "%f", &us)
	expect.OK(b, err)
	return us
}

// The figures of keys in docs/data/redis.md. They are the server's time for each step in µs, lowest
// and median of rounds of eight, and the memory of a key that waits.
//
// go test -run xxx -bench OfKeys -benchtime 100x prints them.
func BenchmarkServerTimeOfKeys(b *testing.B) {
	server := redistest.Start(b)
	rdb := server.Client()
	memory := func() float64 {
		info, err := rdb.Info(expect.Within(b), "memory").Result()
		expect.OK(b, err)
		var n float64
		_, rest, _ := strings.Cut(info, "used_memory:")
		_, err = fmt.Sscanf(rest, "%f", &n)
		expect.OK(b, err)
		return n
	}
	e := engineAt(b, server.Addr())
	ask := func(s *direct, number int, key string, limit int) protocol.Request {
		r := s.request(protocol.Ask, uint64(number), time.Hour)
		r.Limit, r.Wait, r.Key, r.Ticket = limit, true, engine.Key(key), 30*time.Minute
		return r
	}
	plain, keyed := session(b, e, "plain"), session(b, e, "keyed")
	for _, s := range []*direct{plain, keyed} {
		s.do(s.request(protocol.Release, 1, 0)) // its scripts are known
	}
	keyed.do(ask(keyed, 1, "other", engine.MaxLimit))
	plain.do(ask(plain, 1, "", engine.MaxLimit))

	// Queues: tickets of so many keys, all of one client, which also holds the only
	// permit.
	type queue struct {
		name          string
		keys, tickets int
		s             *direct
		holds, next   int
	}
	queues := []*queue{
		{name: "plain-10", keys: 0, tickets: 10}, {name: "plain-100000", keys: 0, tickets: 100_000},
		{name: "keys-10", keys: 10, tickets: 10}, {name: "keys-10000", keys: 10_000, tickets: 100_000},
		{name: "keys-10-of-10000", keys: 10, tickets: 10_000},
	}
	of := func(q *queue, i int) string {
		if q.keys == 0 {
			return ""
		}
		return fmt.Sprint("key ", i%q.keys)
	}
	bytes := map[string]float64{} // of a ticket
	for _, q := range queues {
		q.s = session(b, e, q.name)
		q.s.do(ask(q.s, 1, of(q, 0), 1))
		q.holds, q.next = 1, 2
		var asks []protocol.Request
		before := memory()
		for i := range q.tickets {
			asks = append(asks, ask(q.s, q.next, of(q, i), 1))
			q.next++
			if len(asks) == 500 || i == q.tickets-1 {
				q.s.do(asks...)
				asks = nil
			}
		}
		if q.tickets >= 10_000 {
			bytes[q.name] = (memory() - before) / float64(q.tickets)
		}
	}
	// handOff releases the permit. The reply names the ticket that gets it.
	handOff := func(q *queue) {
		granted := []protocol.Grant{}
		released := q.s.request(protocol.Release, uint64(q.holds), 0)
		reply, err := q.s.try(expect.Within(b), released)
		expect.OK(b, err)
		granted = append(granted, reply.Notification.Grants...)
		if len(granted) != 1 {
			b.Fatalf("%s: %d grants", q.name, len(granted))
		}
		q.holds = int(granted[0].ID.Number)
	}
	const round = 8 // fewer than the shortest queue has
	times := map[string][]float64{}
	measured := func(what string, f func(i int)) {
		expect.OK(b, rdb.ConfigResetStat(expect.Within(b)).Err())
		for i := range round {
			f(i)
		}
		times[what] = append(times[what], perCall(b, rdb))
	}
	for b.Loop() {
		for _, s := range []struct {
			what string
			*direct
			key string
		}{{"plain-", plain, ""}, {"keyed-", keyed, "acme"}} {
			measured(s.what+"acquire", func(i int) { s.do(ask(s.direct, 10+i, s.key, engine.MaxLimit)) })
			measured(s.what+"release", func(i int) { s.do(s.request(protocol.Release, uint64(10+i), 0)) })
		}
		for _, q := range queues {
			measured(q.name+"-hand-off", func(int) { handOff(q) })
			var again []protocol.Request
			for range round {
				again = append(again, ask(q.s, q.next, of(q, q.next), 1))
				q.next++
			}
			i := 0
			measured(q.name+"-join", func(int) { q.s.do(again[i]); i++ })
		}
	}
	for what, all := range times {
		slices.Sort(all)
		b.ReportMetric(all[0], what+"-µs")
		b.ReportMetric(all[len(all)/2], what+"-median-µs")
	}
	for name, n := range bytes { // here, because resetting the timer deletes earlier metrics
		b.ReportMetric(n, name+"-B/ticket")
	}
	b.ReportMetric(0, "ns/op")
	b.Cleanup(func() { expect.OK(b, rdb.FlushDB(expect.Within(b)).Err()) })
}

// Keys that nobody uses any more leave nothing behind.
func TestIdleKeysLeaveNothing(t *testing.T) {
	server := redistest.Start(t)
	rdb := server.Client()
	s := session(t, engineAt(t, server.Addr()), "x")
	const keys = 1000
	count := func() int64 {
		ctx := expect.Within(t)
		return rdb.HLen(ctx, "sema:{x}:keys").Val() + rdb.ZCard(ctx, "sema:{x}:turn").Val() + rdb.ZCard(ctx, "sema:{x}:lines").Val()
	}
	var asks, releases []protocol.Request
	for i := range keys {
		r := s.request(protocol.Ask, uint64(i+1), time.Hour)
		r.Limit, r.Wait, r.Key, r.Ticket = keys/2, true, engine.Key(fmt.Sprint("key ", i)), time.Hour
		asks = append(asks, r)
		releases = append(releases, s.request(protocol.Release, uint64(i+1), 0))
	}
	for part := range slices.Chunk(asks, 500) {
		s.do(part...)
	}
	if n := count(); n < 2*keys {
		t.Fatalf("%d entries for %d keys", n, keys)
	}
	for part := range slices.Chunk(releases, 500) {
		s.do(part...)
	}
	if n := count(); n > 1 { // the record common to all keys
		t.Errorf("%d entries are left", n)
	}
}

// A hand-over that leaves nobody waiting reads only what it needs. The zset of the keys in turn is empty then, and
// nobody deleted it.
func TestTheLastHandOverOfKeysReadsNoState(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	rdb := server.Client()
	for _, path := range [][]string{{"acme"}, {"acme", "alice"}, {"acme", "alice", "chat"}} {
		holder := openSem(t, engineAt(t, server.Addr()), strings.Join(path, "-"), 1, nil)
		waiter := openSem(t, engineAt(t, server.Addr()), strings.Join(path, "-"), 1, nil)
		held, err := holder.Acquire(expect.Within(t), sema.For(path...))
		expect.OK(t, err)
		w := queue(t, waiter, sema.For(path...))
		expect.OK(t, rdb.ConfigResetStat(expect.Within(t)).Err())
		expect.OK(t, held.Release())
		expect.OK(t, w.permit(t).Release())
		info, err := rdb.Info(expect.Within(t), "commandstats").Result()
		expect.OK(t, err)
		if strings.Contains(info, "cmdstat_hgetall:") {
			t.Errorf("%v: a step read the whole state", path)
		}
	}
}

// A call may ask for more keys than a script can name in one command.
func TestACallOfThousandsOfKeys(t *testing.T) {
	const keys = 8100
	server := redistest.Start(t)
	e := patientAt(t, server.Addr())
	s, other := session(t, e, "x"), session(t, e, "x")
	asks := func(d *direct) (all []protocol.Request) {
		for i := range keys {
			r := d.request(protocol.Ask, uint64(i+1), time.Hour)
			r.Key, r.Wait = engine.Key(fmt.Sprint("key ", i)), true
			all = append(all, r)
		}
		return all
	}
	for part := range slices.Chunk(asks(s), 500) {
		s.do(part...)
	}
	if a := other.do(asks(other)...)[keys-1]; a.Status != protocol.Queued || a.Ahead != 1 {
		t.Errorf("%+v", a)
	}
}
