package redisengine

import (
	"context"
	"testing"
	"time"

	"pgregory.net/rapid"

	"sema/engine"
	"sema/internal/protocol"
)

// A program or an eviction deletes some of a semaphore's keys, but not its state. No step fails then. As soon as the
// limit and the caps allow all, nobody waits any more, and in the end nothing counts as held.
func TestDeletedKeysHoldUpNobodyForGood(t *testing.T) {
	t.Parallel()
	var m met
	b, ctx := newBench(t, &m), context.Background()
	rapid.Check(t, func(t *rapid.T) {
		j := newJudge(b, false)
		j.names = []string{"", "b", "a", "a\x01x", "a\x01y", "a\x01x\x01m", "b\x01x"}
		j.sync(t)
		step := func(client string, requests ...protocol.Request) {
			c := j.next()
			c.Requests = requests
			w := words{keys: j.keys, client: client, keyed: true}
			args := w.encode(c, 0)
			args[0], args[1] = "evalsha", b.step
			b.rdb.Set(ctx, "now", j.now, 0)
			if err := b.rdb.Do(ctx, args...).Err(); err != nil {
				t.Fatalf("%+v: %v", requests, err)
			}
		}
		for range rapid.IntRange(5, 40).Draw(t, "steps") {
			j.now += rapid.Int64Range(0, 3000).Draw(t, "µs")
			client := j.client(t)
			var requests []protocol.Request
			for range rapid.IntRange(1, 3).Draw(t, "requests") {
				r := j.request(t, client)
				if r.Kind == protocol.Ask || r.Kind == protocol.Renew {
					r.Lease, r.Ticket = time.Hour, time.Hour
				}
				requests = append(requests, r)
			}
			step(client, requests...)
			if one(t, 8, "deletion") {
				kind := rapid.SampledFrom([]string{"holders", "waiters", "turn", "keys", "lines"}).Draw(t, "deleted")
				b.rdb.Del(ctx, j.keys.prefix+kind)
			}
		}

		first, open := j.clients[0], protocol.Request{Kind: protocol.SetLimit, Limit: 10_000, Caps: engine.Caps{-1, -1, -1}}
		step(first, open, protocol.Request{Kind: protocol.Unpause})
		for _, name := range j.names {
			step(first, protocol.Request{Kind: protocol.UnsetKey, Target: protocol.Target{Key: engine.Key(name)}})
		}
		for id, value := range b.rdb.HGetAll(ctx, j.keys.state()).Val() {
			if isTicket(value) {
				t.Fatalf("%s waits for ever", id)
			}
		}

		after := time.Hour + 10*time.Second
		j.now += after.Microseconds()
		b.rdb.EvalSha(ctx, b.pass, nil, after.Milliseconds())
		step(first, open)
		st := decoded(t, b.rdb.EvalSha(ctx, b.state, j.keys.ofState(), defaultReadSize))
		if n := b.rdb.HLen(ctx, j.keys.prefix+"keys").Val(); st.used > 0 || n > 1 { // the record common to all keys
			t.Fatalf("nobody holds, and %d count, with %d records of keys", st.used, n-1)
		}
	})
}
