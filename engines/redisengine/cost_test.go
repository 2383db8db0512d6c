package redisengine_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

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
