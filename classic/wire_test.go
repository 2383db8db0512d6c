package classic

import (
	"bufio"
	"fmt"
	"maps"
	"net"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"sema/internal/fixture/expect"
	"sema/internal/fixture/redistest"
)

// monitor returns a function. It returns the commands that the server has executed
// since the function's last call, as MONITOR shows them, without those of scripts.
func monitor(t *testing.T, srv *redistest.Server) func() []string {
	t.Helper()
	conn, err := net.Dial("tcp", srv.Addr())
	expect.OK(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	lines := bufio.NewScanner(conn)
	if _, err := fmt.Fprint(conn, "MONITOR\r\n"); err != nil || !lines.Scan() {
		t.Fatal("MONITOR:", err, lines.Err())
	}
	rdb, marks := srv.Client(), 0
	shape := regexp.MustCompile(`^\+[0-9.]+ \[0 [0-9.:]+\] (.*)$`)
	return func() []string {
		marks++
		mark := fmt.Sprintf("mark-%d", marks)
		expect.OK(t, rdb.Echo(t.Context(), mark).Err())
		var seen []string
		for lines.Scan() {
			if strings.Contains(lines.Text(), mark) {
				return seen
			}
			if m := shape.FindStringSubmatch(lines.Text()); m != nil {
				cmd := strings.ReplaceAll(m[1], `"`, "")
				name := strings.Fields(cmd)[0]
				if name != "hello" && name != "client" && name != "ping" {
					seen = append(seen, cmd)
				}
			}
		}
		t.Fatal("MONITOR ended:", lines.Err())
		return nil
	}
}

// TestWire compares the commands of each type, one by one, with those of the
// book's Python program (seen with MONITOR). It also checks the data in Redis
// afterwards.
func TestWire(t *testing.T) {
	t.Parallel()
	const (
		at   = "1767323045.6789012" // newHandClock, as Python prints the float
		over = "1767323035.6789012" // 10 s before
	)
	srv := redistest.Start(t)
	seen := monitor(t, srv)
	rdb := srv.Client()
	layout := func(t *testing.T, want map[string]string) {
		t.Helper()
		layout(t, rdb, want)
		seen() // only this test's own looking
	}
	clock := newHandClock()
	o := Options{Clock: clock.now, Wait: 1}

	sent := func(t *testing.T, what string, ids []string, want ...string) {
		t.Helper()
		got := seen()
		for i := range got {
			for n, id := range ids {
				got[i] = strings.ReplaceAll(got[i], id, fmt.Sprintf("ID%d", n+1))
			}
			got[i] = anyUUID.ReplaceAllString(got[i], "UUID")
			got[i] = anySHA.ReplaceAllString(got[i], "SHA")
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s sent\n  %s\nwant\n  %s", what, strings.Join(got, "\n  "), strings.Join(want, "\n  "))
		}
	}
	start := func(t *testing.T, name string) Semaphore {
		t.Helper()
		expect.OK(t, rdb.FlushDB(t.Context()).Err())
		for _, v := range variants {
			if v.name == name {
				sem := v.new(t, rdb, 1, o)
				if strings.Contains(name, "Lua") || name == "Scripted" {
					release(t, sem, must(t, sem), true) // Redis gets the scripts
					if r, ok := sem.(Refresher); ok {
						_, _ = r.Refresh(t.Context(), "nobody")
					}
				}
				seen()
				return sem
			}
		}
		t.Fatal(name)
		return nil
	}

	fairTry := []string{
		"multi", "zremrangebyscore sem -inf " + over,
		"zinterstore sem:owner 2 sem:owner sem weights 1 0", "incrby sem:counter 1", "exec",
	}
	fairAdd := func(id string, n int) []string {
		return []string{
			"multi", "zadd sem " + at + " " + id,
			fmt.Sprintf("zadd sem:owner %d %s", n, id), "zrank sem:owner " + id, "exec",
		}
	}
	fairRemove := func(id string) []string {
		return []string{"multi", "zrem sem " + id, "zrem sem:owner " + id, "exec"}
	}
	// go-redis writes SETNX as SET NX, which does the same.
	lockTake := []string{"set lock:sem UUID nx", "expire lock:sem 10"}
	lockGive := []string{"watch lock:sem", "get lock:sem", "multi", "del lock:sem", "exec"}

	t.Run("Lock", func(t *testing.T) {
		sem := start(t, "Lock")
		id := must(t, sem)
		sent(t, "acquire", []string{id}, "set lock:sem ID1 nx", "expire lock:sem 10")
		mustNot(t, sem)
		sent(t, "refused", []string{id}, "set lock:sem UUID nx", "get lock:sem", "ttl lock:sem")
		layout(t, map[string]string{"lock:sem": "string " + id + " lease"})
		release(t, sem, id, true)
		sent(t, "release", nil, lockGive...)
	})
	t.Run("Lock Lua", func(t *testing.T) {
		sem := start(t, "Lock Lua")
		id := must(t, sem)
		sent(t, "acquire", []string{id}, "evalsha SHA 1 lock:sem 10 ID1")
		layout(t, map[string]string{"lock:sem": "string " + id + " lease"})
		release(t, sem, id, true)
		sent(t, "release", []string{id}, "evalsha SHA 1 lock:sem ID1")
	})
	t.Run("Basic", func(t *testing.T) {
		sem := start(t, "Basic")
		id := must(t, sem)
		sent(t, "acquire", []string{id},
			"multi", "zremrangebyscore sem -inf "+over, "zadd sem "+at+" ID1", "zrank sem ID1", "exec")
		layout(t, map[string]string{"sem": "zset " + id + " " + at})
		release(t, sem, id, true)
		sent(t, "release", []string{id}, "zrem sem ID1")
	})
	t.Run("Fair", func(t *testing.T) {
		sem := start(t, "Fair")
		id := must(t, sem)
		sent(t, "acquire", []string{id}, slices.Concat(fairTry, fairAdd("ID1", 1))...)
		mustNot(t, sem)
		sent(t, "refused", nil, slices.Concat(fairTry, fairAdd("UUID", 2), fairRemove("UUID"))...)
		layout(t, map[string]string{
			"sem": "zset " + id + " " + at, "sem:owner": "zset " + id + " 1", "sem:counter": "string 2",
		})
		refresh(t, sem, id, true)
		sent(t, "refresh", []string{id}, "zadd sem "+at+" ID1")
		release(t, sem, id, true)
		sent(t, "release", []string{id}, fairRemove("ID1")...)
		refresh(t, sem, id, false)
		sent(t, "refresh of a lost one", []string{id}, slices.Concat([]string{"zadd sem " + at + " ID1"}, fairRemove("ID1"))...)
		layout(t, map[string]string{"sem:counter": "string 2"})
	})
	t.Run("Locked", func(t *testing.T) {
		sem := start(t, "Locked")
		id := must(t, sem)
		sent(t, "acquire", []string{id}, slices.Concat(lockTake, fairTry, fairAdd("ID1", 1), lockGive)...)
		layout(t, map[string]string{
			"sem": "zset " + id + " " + at, "sem:owner": "zset " + id + " 1", "sem:counter": "string 1",
		})
		release(t, sem, id, true)
		sent(t, "release", []string{id}, fairRemove("ID1")...)
	})
	t.Run("Scripted", func(t *testing.T) {
		sem := start(t, "Scripted")
		id := must(t, sem)
		sent(t, "acquire", []string{id}, "evalsha SHA 1 sem "+over+" 1 "+at+" ID1")
		mustNot(t, sem)
		seen()
		layout(t, map[string]string{"sem": "zset " + id + " " + at})
		refresh(t, sem, id, true)
		sent(t, "refresh", []string{id}, "evalsha SHA 1 sem ID1 "+at)
		release(t, sem, id, true)
		sent(t, "release", []string{id}, "zrem sem ID1")
	})
	t.Run("Clockless", func(t *testing.T) {
		for _, name := range []string{"Clockless", "Clockless Lua"} {
			sem := start(t, name)
			id := must(t, sem)
			number := strings.TrimSpace(rdb.Get(t.Context(), "sem:counter").Val())
			layout(t, map[string]string{
				"sem:owner": "zset " + id + " " + number, "sem:counter": "string " + number,
				"sem:holder:" + id: "string 10000 lease",
			})
			release(t, sem, id, true)
			layout(t, map[string]string{"sem:counter": "string " + number})
		}
	})
}

var (
	anyUUID = regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f-]{27}`)
	anySHA  = regexp.MustCompile(`\b[0-9a-f]{40}\b`)
)

// layout compares all keys: type, value or member and score, and whether a
// lease ends them.
func layout(t *testing.T, rdb *redis.Client, want map[string]string) {
	t.Helper()
	ctx, got := t.Context(), map[string]string{}
	for _, key := range rdb.Keys(ctx, "*").Val() {
		kind := rdb.Type(ctx, key).Val()
		text := kind
		switch kind {
		case "string":
			text += " " + rdb.Get(ctx, key).Val()
		case "zset":
			for _, z := range rdb.ZRangeWithScores(ctx, key, 0, -1).Val() {
				text += fmt.Sprintf(" %s %s", z.Member, scoreText(z.Score))
			}
		}
		switch ttl := rdb.PTTL(ctx, key).Val(); {
		case ttl > 10*time.Second:
			text += " a TTL of " + ttl.String()
		case ttl > 0:
			text += " lease"
		}
		got[key] = text
	}
	if !maps.Equal(got, want) {
		t.Errorf("in Redis:\n  %v\nwant\n  %v", got, want)
	}
}
