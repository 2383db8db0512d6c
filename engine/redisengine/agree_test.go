package redisengine

import (
	"context"
	"flag"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"pgregory.net/rapid"

	"sema/engine"
	"sema/internal/ledger"
	"sema/internal/redistest"
)

// The scripts under test read their clock from a key, so that both sides see the
// same time. Who listens is the test's to say, and what is published the
// test's to read.
var forTest = strings.NewReplacer(
	"local clock = redis.call('TIME')\nlocal now = clock[1] * 1000000 + clock[2]\n", "local now = tonumber(redis.call('GET', 'now'))\n",
	"redis.call('PUBSUB', string.byte(who) == 115 and 'SHARDNUMSUB' or 'NUMSUB', s.inbox .. who)", "{'', redis.call('SISMEMBER', 'dead', who) == 1 and 0 or 1}",
	"redis.call('PUBSUB', string.byte(caller) == 115 and 'SHARDNUMSUB' or 'NUMSUB', inbox .. caller)", "{'', redis.call('SISMEMBER', 'dead', caller) == 1 and 0 or 1}",
	"redis.pcall(string.byte(who) == 115 and 'SPUBLISH' or 'PUBLISH', s.inbox .. who, message)", "redis.call('RPUSH', 'published', who, message)",
)

// judge runs the same calls on the ledger and on the script.
type judge struct {
	rdb    *redis.Client
	words  words
	step   string // the script's hash
	state  string
	ledger ledger.Ledger
	now    int64
	calls  uint64
	number uint64
	known  []engine.ID     // that were used
	dead   map[string]bool // clients nobody listens for
}

var agreeClients = []string{"pa.1", "pb.1", "pc.1"}

func (j *judge) id(t *rapid.T) engine.ID {
	if len(j.known) > 0 && !one(t, 8, "new") {
		return rapid.SampledFrom(j.known).Draw(t, "id")
	}
	j.number++
	id := engine.ID{Client: rapid.SampledFrom(agreeClients).Draw(t, "client"), Number: j.number, Weight: 1}
	if rapid.Bool().Draw(t, "special") {
		id.Slot, id.Weight = rapid.Bool().Draw(t, "slot"), rapid.IntRange(1, 12).Draw(t, "weight")
	}
	j.known = append(j.known, id)
	return id
}

func one(t *rapid.T, in int, what string) bool { return rapid.IntRange(1, in).Draw(t, what) == 1 }

func (j *judge) request(t *rapid.T) engine.Request {
	kind := rapid.SampledFrom([]engine.Kind{
		engine.Ask, engine.Ask, engine.Ask, engine.Ask, engine.Ask, engine.Ask, engine.Renew, engine.Renew,
		engine.Release, engine.Release, engine.Release, engine.Release, engine.Revoke, engine.SetLimit, engine.UnsetLimit,
		engine.Remove, engine.Unpause,
	}).Draw(t, "kind")
	r := engine.Request{Kind: kind, Limit: rapid.IntRange(1, 6).Draw(t, "limit")}
	if kind == engine.Unpause && one(t, 2, "pause") {
		r.Kind = engine.Pause
	}
	if !named(kind) {
		r.Pin = one(t, 4, "pin")
		return r
	}
	r.ID = j.id(t)
	r.Lease = time.Duration(rapid.IntRange(1, 50).Draw(t, "lease")) * time.Millisecond
	if one(t, 100, "long") {
		r.Lease = time.Hour
	}
	r.Ticket = r.Lease / 2
	if kind == engine.Ask {
		r.Wait, r.Unfair, r.Strict = !one(t, 4, "try"), one(t, 6, "unfair"), one(t, 10, "strict")
		r.Detached = one(t, 10, "detached")
		if one(t, 2, "again") {
			r.Waited = time.Duration(rapid.IntRange(0, 80).Draw(t, "waited")) * 500 * time.Microsecond
		}
		r.Again, r.Anew = one(t, 3, "insists"), one(t, 6, "anew")
		if one(t, 4, "more wait") {
			r.Behind = rapid.IntRange(0, 100_000).Draw(t, "behind")
		}
	}
	if (kind == engine.Renew || kind == engine.Release) && one(t, 3, "passed on") {
		r.Token = j.now + int64(rapid.IntRange(-30_000, 30_000).Draw(t, "token"))
	}
	return r
}

// both carries out one call on both sides and compares replies and notifications.
func (j *judge) both(t *rapid.T) {
	ctx := context.Background()
	caller := rapid.SampledFrom(agreeClients).Draw(t, "caller")
	j.calls++
	c := engine.Call{Number: j.calls, Fence: one(t, 20, "fence")}
	if one(t, 20, "late") {
		c.Number -= uint64(rapid.IntRange(0, int(j.calls-1)).Draw(t, "by"))
	}
	for range rapid.IntRange(1, 5).Draw(t, "requests") {
		r := j.request(t)
		c.Requests = append(c.Requests, r)
		if one(t, 4, "run") && named(r.Kind) { // several that travel together
			for range rapid.IntRange(1, 4).Draw(t, "more") {
				r.ID.Number = j.id(t).Number
				c.Requests = append(c.Requests, r)
			}
		}
	}
	if one(t, 2, "keeps") {
		c.Keep = time.Duration(rapid.IntRange(1, 60).Draw(t, "keep")) * time.Millisecond
	}
	if !one(t, 6, "deaf") { // most who call can be told
		delete(j.dead, caller)
		j.rdb.SRem(ctx, "dead", caller)
	}

	want := j.ledger.Step(j.now, caller, engine.Client{}, c)
	wantTold := map[string]string{}
	for client, n := range j.ledger.Notifications() {
		if !n.Empty() {
			wantTold[client] = describe(*n)
		}
	}
	got, gotTold := j.script(t, caller, c)
	if g, w := fmt.Sprintf("%+v", readable(got)), fmt.Sprintf("%+v", readable(want)); g != w {
		t.Fatalf("%s at %d: %+v\nscript %s\nledger %s", caller, j.now, c, g, w)
	}
	if !maps.Equal(gotTold, wantTold) {
		t.Fatalf("%s at %d: %+v told\nscript %q\nledger %q", caller, j.now, c, gotTold, wantTold)
	}
}

// script carries out one call.
func (j *judge) script(t *rapid.T, caller string, c engine.Call) (engine.Reply, map[string]string) {
	ctx := context.Background()
	j.words.client = caller
	args := j.words.encode(c, nil)
	args[0], args[1] = "evalsha", j.step
	var reply *redis.Cmd
	var published *redis.StringSliceCmd
	_, err := j.rdb.Pipelined(ctx, func(p redis.Pipeliner) error {
		p.Set(ctx, "now", j.now, 0)
		reply = p.Do(ctx, args...)
		published = p.LRange(ctx, "published", 0, -1)
		p.Del(ctx, "published")
		return nil
	})
	if err != nil {
		t.Fatalf("%s at %d: %+v: %v", caller, j.now, c, err)
	}
	text, _ := reply.Text()
	got, err := decode(text, len(c.Requests))
	if err != nil && err != errLate {
		t.Fatal(err)
	}
	told := map[string]string{}
	for i := 0; i < len(published.Val()); i += 2 {
		told[published.Val()[i]] = describe(parseNotification(published.Val()[i+1]))
	}
	return got, told
}

func readable(r engine.Reply) any {
	return []any{r.Limit, r.Recheck, r.Answers, r.Deaf, r.Leave, r.Recalled, describe(r.Notification)}
}

func describe(n engine.Notification) string {
	var lines []string
	for _, g := range n.Grants {
		lines = append(lines, fmt.Sprintf("%+v", g))
	}
	slices.Sort(lines)
	return fmt.Sprint(lines, n.Ask, n.Renew, n.Recheck, n.Recall)
}

// check compares the whole state, read in one step and in parts.
func (j *judge) check(t *rapid.T) {
	ctx := context.Background()
	j.rdb.Set(ctx, "now", j.now, 0)
	keys := j.words.keys
	want := j.ledger.State(j.now)
	for _, most := range []int{wholeState, 0} {
		if most == 0 && j.calls%4 != 0 {
			break // it takes many calls of the server
		}
		values, err := j.rdb.EvalSha(ctx, j.state, keys.main[:], most).Slice()
		if err != nil {
			t.Fatal(err)
		}
		r, err := decodeState(values)
		if err != nil {
			t.Fatal(err)
		}
		if all := len(want.Holders) + len(want.Waiters); r.whole && all > most || !r.whole && most == wholeState {
			t.Fatalf("at %d: at most %d in a step of %d; all were read: %v", j.now, most, all, r.whole)
		}
		if !r.whole {
			j.parts(t, r)
		}
		got, _ := r.state()
		if g, w := fmt.Sprintf("%+v", got), fmt.Sprintf("%+v", want); g != w {
			t.Fatalf("at %d, at most %d in a step\nscript %s\nledger %s", j.now, most, g, w)
		}
	}
	j.counts(t)
}

// parts reads the permits and tickets as readParts does, at the test's time.
func (j *judge) parts(t *rapid.T, r *reading) {
	ctx := context.Background()
	for cursor, last := uint64(0), false; !last; last = cursor == 0 {
		found, next, err := j.rdb.HScan(ctx, j.words.keys.main[0], cursor, "", 2).Result()
		if err != nil {
			t.Fatal(err)
		}
		var ends []float64
		if holders := permits(found); len(holders) > 0 {
			if ends, err = j.rdb.ZMScore(ctx, j.words.keys.main[1], holders...).Result(); err != nil {
				t.Fatal(err)
			}
		}
		r.part(j.now, found, ends)
		cursor = next
	}
}

// counts checks that what the script counts is there: weight, tickets, and an
// entry of the state for each.
func (j *judge) counts(t *rapid.T) {
	ctx := context.Background()
	keys := j.words.keys
	const count = `local raw = redis.call('HGET', KEYS[1], '')
		if not raw then return {0, 0, redis.call('EXISTS', KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[6])} end
		local _, limit, used, _, _, _, _, _, queued = struct.unpack(STATE, raw)
		return {used, queued, redis.call('HLEN', KEYS[1]) - 1}`
	counts, err := j.rdb.Eval(ctx, wordsLua+count, keys.main[:]).Int64Slice()
	if err != nil {
		t.Fatal(err)
	}
	sum, holders := 0, 0
	for _, member := range j.rdb.ZRange(ctx, keys.main[1], 0, -1).Val() {
		if !strings.HasPrefix(member, "This member") {
			id, err := engine.ParseID(member)
			if err != nil {
				t.Fatal(err)
			}
			sum += id.Weight
			holders++
		}
	}
	waiters := int(j.rdb.ZCard(ctx, keys.main[2]).Val())
	if want := []int64{int64(sum), int64(waiters), int64(holders + waiters)}; !slices.Equal(counts, want) {
		t.Fatalf("at %d the script counts %v for weight, tickets and both; there are %v", j.now, counts, want)
	}
}

// The proof of the Lua: whatever is asked, in whatever order and at whatever
// time, the script says and does what the ledger does. -rapid.checks is how
// often that is tried.
func TestScriptAgreesWithLedger(t *testing.T) {
	t.Parallel()
	if checks := flag.Lookup("rapid.checks"); checks.Value.String() == checks.DefValue {
		if err := checks.Value.Set("2000"); err != nil {
			t.Fatal(err)
		}
	}
	rdb := redistest.Start(t).Client()
	step, state := forTest.Replace(stepSource), forTest.Replace(wordsLua+stateLua)
	if strings.Contains(step, "PUBSUB") || strings.Contains(step, "PUBLISH'") || strings.Contains(step+state, "TIME'") {
		t.Fatal("the script has changed: its clock or its messages no longer come from here")
	}
	ctx := context.Background()
	stepHash, stateHash := rdb.ScriptLoad(ctx, step), rdb.ScriptLoad(ctx, state)
	if stepHash.Err() != nil || stateHash.Err() != nil {
		t.Fatal(stepHash.Err(), stateHash.Err())
	}

	rapid.Check(t, func(t *rapid.T) {
		if err := rdb.FlushAll(ctx).Err(); err != nil {
			t.Fatal(err)
		}
		j := &judge{
			rdb: rdb, words: words{keys: keysOf(defaultPrefix, "x")}, step: stepHash.Val(), state: stateHash.Val(),
			now: time.Now().UnixMicro(), dead: map[string]bool{},
		}
		j.ledger.Reach = func(client string) bool { return !j.dead[client] }
		t.Repeat(map[string]func(*rapid.T){
			"":      j.check,
			"call":  j.both,
			"call2": j.both,
			"call3": j.both,
			// In steps that meet the ends of leases and tickets.
			"time": func(t *rapid.T) { j.now += 500 * int64(rapid.IntRange(1, 60).Draw(t, "half ms")) },
			"die": func(t *rapid.T) {
				client := rapid.SampledFrom(agreeClients).Draw(t, "client")
				j.dead[client] = true
				rdb.SAdd(ctx, "dead", client)
			},
		})
	})
}
