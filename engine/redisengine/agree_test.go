package redisengine

import (
	"context"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"pgregory.net/rapid"

	"sema"
	"sema/internal/ledger"
	"sema/internal/redistest"
)

// The script under test reads its clock from a key, so that both sides see the
// same time.
const testClock = "local now = tonumber(redis.call('GET', 'now'))\n"

// judge runs the same operations on the ledger and on the script.
type judge struct {
	t       *rapid.T
	rdb     *redis.Client
	keys    keys
	step    *redis.Script
	state   *redis.Script
	ledger  ledger.Ledger
	now     int64
	number  int
	known   []string        // ids that were used
	dead    map[string]bool // clients nobody listens for
	arrival map[string]int64
	over    bool // a batch was run: the two may disagree on who keeps the watch
}

var agreeClients = []string{"pa.1", "pb.1", "pc.1"}

func (j *judge) id() string {
	if len(j.known) > 0 && rapid.Bool().Draw(j.t, "known") {
		return rapid.SampledFrom(j.known).Draw(j.t, "id")
	}
	j.number++
	id := sema.ID{Client: rapid.SampledFrom(agreeClients).Draw(j.t, "client"), Number: uint64(j.number), Weight: 1}
	if rapid.Bool().Draw(j.t, "special") {
		id.Slot, id.Listed = rapid.Bool().Draw(j.t, "slot"), rapid.Bool().Draw(j.t, "listed")
		id.Weight = rapid.IntRange(1, 12).Draw(j.t, "weight")
	}
	j.known = append(j.known, id.String())
	return id.String()
}

var tokens = regexp.MustCompile(`Token:\d+`)

func listed(id string) bool {
	parsed, _ := sema.ParseID(id)
	return parsed.Listed
}

func (j *judge) duration(what string) time.Duration {
	return time.Duration(rapid.IntRange(1, 50).Draw(j.t, what)) * time.Millisecond
}

// run carries out one operation on both sides and compares answers and news.
func (j *judge) run(caller string, o op, onLedger func() sema.Answer) {
	j.t.Helper()
	ctx := context.Background()
	delete(j.dead, caller) // who calls can be told
	if err := j.rdb.SRem(ctx, "dead", caller).Err(); err != nil {
		j.t.Fatal(err)
	}
	want := onLedger()
	wantNews := map[string]string{}
	for client, w := range j.ledger.Take() {
		if text := describeWake(*w); text != "" {
			wantNews[client] = text
		}
	}
	list, gotNews := j.script(caller, []*op{&o})
	if got := &list[0]; got.Status == sema.Granted && want.Status == sema.Granted && !listed(o.id) {
		// Its token was not recorded: who asks again gets a newer one, who
		// renews none. With the time both sides' tokens meet again.
		switch {
		case o.kind == renewOp && got.Token == 0, o.kind == acquireOp && got.Token > want.Token:
			got.Token = want.Token
			j.now += 10
			for _, news := range []map[string]string{gotNews, wantNews} {
				for client := range news {
					news[client] = tokens.ReplaceAllString(news[client], "")
				}
			}
		}
	}
	if list[0] != want {
		j.t.Fatalf("%s %+v at %d\nscript %+v\nledger %+v", caller, o, j.now, list[0], want)
	}
	if !maps.Equal(gotNews, wantNews) {
		j.t.Fatalf("%s %+v at %d: news\nscript %q\nledger %q", caller, o, j.now, gotNews, wantNews)
	}
}

// script carries out one step.
func (j *judge) script(caller string, ops []*op) (list []sema.Answer, gotNews map[string]string) {
	j.t.Helper()
	ctx := context.Background()
	if err := j.rdb.Set(ctx, "now", j.now, 0).Err(); err != nil {
		j.t.Fatal(err)
	}
	args := program([]any{caller}, ops)
	reply, err := j.step.Run(ctx, j.rdb, j.keys.main[:], args...).Slice()
	if err != nil {
		j.t.Fatal(err)
	}
	own, err := readReply(reply, ops)
	if err != nil {
		j.t.Fatal(err)
	}
	for _, o := range ops {
		list = append(list, o.answer)
	}
	gotNews = map[string]string{}
	if text := describeWake(parseNews(own)); text != "" {
		gotNews[caller] = text
	}
	published, err := j.rdb.LRange(ctx, "published", 0, -1).Result()
	if err != nil {
		j.t.Fatal(err)
	}
	for i := 0; i < len(published); i += 2 {
		client := strings.TrimPrefix(published[i], j.keys.inboxes())
		gotNews[client] = describeWake(parseNews(published[i+1]))
	}
	j.rdb.Del(ctx, "published")
	return list, gotNews
}

// batch carries out several operations as one step of the script, and one by
// one on the ledger: combining changes nothing.
func (j *judge) batch() {
	caller := rapid.SampledFrom(agreeClients).Draw(j.t, "caller")
	delete(j.dead, caller)
	j.rdb.SRem(context.Background(), "dead", caller)
	j.over = true
	var ops []*op
	var want []sema.Status
	limit := rapid.IntRange(2, 5).Draw(j.t, "limit")
	lease := j.duration("lease")
	wait := rapid.Bool().Draw(j.t, "wait")
	for range rapid.IntRange(2, 12).Draw(j.t, "ops") {
		id := j.id()
		if sema.ClientOf(id) != caller {
			continue
		}
		if rapid.IntRange(0, 9).Draw(j.t, "mixed") == 0 {
			lease, wait = j.duration("lease"), !wait
		}
		parsed, _ := sema.ParseID(id)
		r := sema.Request{
			ID: id, Weight: parsed.Weight, Limit: limit, Wait: wait,
			Lease: lease, Ticket: lease / 2, Arrival: j.arrival[id],
		}
		switch rapid.SampledFrom([]byte{releaseOp, acquireOp, acquireOp, renewOp}).Draw(j.t, "kind") {
		case releaseOp:
			status := sema.Status(0)
			if j.ledger.Release(j.now, id) {
				status = found
			}
			o := idOp(releaseOp, id, 0)
			ops, want = append(ops, &o), append(want, status)
		case renewOp:
			r.Token = 1
			o := idOp(renewOp, id, lease)
			ops, want = append(ops, &o), append(want, j.ledger.Renew(j.now, sema.Client{}, r).Status)
		default:
			a := j.ledger.Acquire(j.now, sema.Client{}, r)
			if a.Arrival != 0 {
				j.arrival[id] = a.Arrival
			}
			o := askOp(r)
			ops, want = append(ops, &o), append(want, a.Status)
		}
	}
	j.ledger.Take()
	if len(ops) == 0 {
		return
	}
	list, _ := j.script(caller, ops)
	for i := range list {
		// Whether a ticket that fell silent was still there is the watch's doing.
		if ops[i].kind != releaseOp && list[i].Status != want[i] {
			j.t.Fatalf("%s: operation %d of %d, %+v, at %d: script %d, ledger %d", caller, i, len(ops), ops[i], j.now, list[i].Status, want[i])
		}
	}
}

func describeWake(w sema.Wake) string {
	var lines []string
	for _, g := range w.Grants {
		lines = append(lines, fmt.Sprintf("%+v", g))
	}
	slices.Sort(lines)
	if w.Ask {
		lines = append(lines, "ask")
	}
	if w.Look > 0 {
		lines = append(lines, w.Look.String())
	}
	return strings.Join(lines, " ")
}

// check compares the whole state.
func (j *judge) check(t *rapid.T) {
	ctx := context.Background()
	if err := j.rdb.Set(ctx, "now", j.now, 0).Err(); err != nil {
		t.Fatal(err)
	}
	values, err := j.state.Run(ctx, j.rdb, j.keys.main[:]).Slice()
	if err != nil {
		t.Fatal(err)
	}
	got, _ := parseState(values)
	whose := map[int64]string{}
	for _, h := range got.Holders {
		if other := whose[h.Token]; h.Token != 0 && other != "" {
			t.Fatalf("at %d: %s and %s have one token", j.now, other, h.ID)
		}
		whose[h.Token] = h.ID
	}
	want := j.ledger.State(j.now)
	for _, st := range []*sema.State{&got, &want} {
		slices.SortFunc(st.Holders, func(a, b sema.Holder) int { return strings.Compare(a.ID, b.ID) })
		for i := range st.Holders {
			st.Holders[i].Age = 0 // the script has it of the token
			if j.over || !listed(st.Holders[i].ID) {
				st.Holders[i].Token = 0 // a batch may have asked again for tokens that were not recorded
			}
		}
	}
	if g, w := fmt.Sprintf("%+v", got), fmt.Sprintf("%+v", want); g != w {
		t.Fatalf("at %d\nscript %s\nledger %s", j.now, g, w)
	}
	used, queued := 0, 0
	if j.rdb.Exists(ctx, j.keys.state()).Val() == 1 {
		counts, err := j.rdb.Eval(ctx, layoutLua+"local s = {struct.unpack(LAYOUT, redis.call('GET', KEYS[1]))} return {s[3], s[10]}", []string{j.keys.state()}).Int64Slice()
		if err != nil {
			t.Fatal(err)
		}
		used, queued = int(counts[0]), int(counts[1])
	}
	if n := int(j.rdb.ZCard(ctx, j.keys.main[2]).Val()); n != queued {
		t.Fatalf("the script counts %d tickets, and there are %d", queued, n)
	}
	sum := 0
	members, _ := j.rdb.ZRange(ctx, j.keys.main[1], 0, -1).Result()
	for _, m := range members {
		id, err := sema.ParseID(strings.TrimPrefix(m, "!"))
		if err != nil {
			t.Fatal(err)
		}
		sum += id.Weight
	}
	if used != sum {
		t.Fatalf("the script counts %d held, and %d are", used, sum)
	}
}

// TestScriptAgreesWithLedger is the proof of the Lua: whatever is asked, in
// whatever order and at whatever time, the script says what the ledger says.
func TestScriptAgreesWithLedger(t *testing.T) { agree(t, false) }

// TestBatchAgreesWithLedger is the proof of combining: what is carried out as
// one step has the effect of the same, one by one.
func TestBatchAgreesWithLedger(t *testing.T) { agree(t, true) }

func agree(t *testing.T, batches bool) {
	rdb := redistest.Start(t).Client()
	// Who listens is the test's to say, and what is published the test's to read.
	lua := strings.NewReplacer(
		"redis.call('PUBSUB', string.byte(who) == 115 and 'SHARDNUMSUB' or 'NUMSUB', inbox)", "{'', redis.call('SISMEMBER', 'dead', who) == 1 and 0 or 1}",
		"redis.pcall(string.byte(who) == 115 and 'SPUBLISH' or 'PUBLISH', inbox .. who, message)", "redis.call('RPUSH', 'published', inbox .. who, message)",
	)
	stepUnderTest := lua.Replace(queueLua + stepLua)
	if strings.Contains(stepUnderTest, "PUBSUB") || strings.Contains(stepUnderTest, "PUBLISH'") {
		t.Fatal("the script has changed: its messages no longer come here")
	}
	step, state := redis.NewScript(testClock+layoutLua+stepUnderTest), redis.NewScript(testClock+layoutLua+stateLua)

	rapid.Check(t, func(t *rapid.T) {
		ctx := context.Background()
		if err := rdb.FlushAll(ctx).Err(); err != nil {
			t.Fatal(err)
		}
		j := &judge{
			t: t, rdb: rdb, keys: keysOf("x"), step: step, state: state,
			now: time.Now().UnixMicro(), dead: map[string]bool{}, arrival: map[string]int64{},
		}
		j.ledger.Reach = func(client string) bool { return !j.dead[client] }
		ask := func(wait bool) func(t *rapid.T) {
			return func(t *rapid.T) {
				j.t = t
				id := j.id()
				parsed, _ := sema.ParseID(id)
				lease := j.duration("lease")
				r := sema.Request{
					ID: id, Weight: parsed.Weight, Limit: rapid.IntRange(2, 5).Draw(t, "limit"), Wait: wait,
					Unfair: rapid.IntRange(0, 5).Draw(t, "unfair") == 0, Strict: rapid.IntRange(0, 9).Draw(t, "strict") == 0,
					Lease: lease, Ticket: lease / 2, Arrival: j.arrival[id],
				}
				j.run(parsed.Client, askOp(r), func() sema.Answer {
					a := j.ledger.Acquire(j.now, sema.Client{}, r)
					if a.Arrival != 0 {
						j.arrival[id] = a.Arrival
					}
					return a
				})
			}
		}
		done := func(found bool) sema.Answer {
			a := sema.Answer{Limit: j.ledger.State(j.now).Limit, Slot: -1}
			if found {
				a.Status = sema.Granted
			}
			return a
		}
		actions := map[string]func(*rapid.T){
			"":        j.check,
			"acquire": ask(true),
			"try":     ask(false),
			"renew": func(t *rapid.T) {
				j.t = t
				id := j.id()
				r := sema.Request{ID: id, Token: 1, Lease: j.duration("lease")}
				client := sema.ClientOf(id)
				j.run(client, idOp(renewOp, id, r.Lease), func() sema.Answer { return j.ledger.Renew(j.now, sema.Client{}, r) })
			},
			"release": func(t *rapid.T) {
				j.t = t
				id := j.id()
				j.run(sema.ClientOf(id), idOp(releaseOp, id, 0), func() sema.Answer { return done(j.ledger.Release(j.now, id)) })
			},
			"revoke": func(t *rapid.T) {
				j.t = t
				id := j.id()
				j.run("pz.1", idOp(revokeOp, id, 0), func() sema.Answer { return done(j.ledger.Revoke(j.now, id)) })
			},
			"limit": func(t *rapid.T) {
				j.t = t
				n := rapid.IntRange(1, 6).Draw(t, "limit")
				j.run("pz.1", op{terms: terms{kind: limitOp, limit: n}}, func() sema.Answer {
					j.ledger.SetLimit(j.now, n, false)
					return done(true)
				})
			},
			"time": func(t *rapid.T) { j.now += int64(rapid.IntRange(1, 30_000).Draw(t, "µs")) },
			"die": func(t *rapid.T) {
				client := rapid.SampledFrom(agreeClients).Draw(t, "client")
				j.dead[client] = true
				rdb.SAdd(ctx, "dead", client)
			},
		}
		if batches {
			for name, action := range actions {
				if name != "" {
					actions[name] = func(t *rapid.T) {
						if !j.over {
							action(t)
						}
					}
				}
			}
			actions["batch"] = func(t *rapid.T) {
				if !j.over {
					j.t = t
					j.batch()
				}
			}
		}
		t.Repeat(actions)
	})
}
