package redisengine

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"
	"pgregory.net/rapid"

	"sema/engine"
	"sema/internal/ledger"
	"sema/internal/protocol"
)

// want is the ledger's state. It has no client for a permit that another client
// asked for without a name.
func (j *judge) want() (st engine.State, others map[engine.ID]bool) {
	l, others := ledger.Load(j.ledger.Save()), maps.Clone(j.others)
	return anonymous(l.State(j.now), others), others
}

func anonymous(st engine.State, others map[engine.ID]bool) engine.State {
	foreign := func(name string) bool {
		id, _ := engine.ParseID(name)
		return others[id]
	}
	for i := range st.Holders {
		if foreign(st.Holders[i].ID) {
			st.Holders[i].Client = engine.Client{}
		}
	}
	for i := range st.Waiters {
		if foreign(st.Waiters[i].ID) {
			st.Waiters[i].Client = engine.Client{}
		}
	}
	return st
}

// look compares the state after each action; with many clients only now and
// then.
func (j *judge) look(*rapid.T) {
	if j.looks++; !j.crowded() || j.looks%8 == 0 {
		j.compare()
	}
}

func clientOf(id string) string {
	client, _, _ := strings.Cut(id, "-")
	return client
}

// compare compares the whole state, read in one step.
func (j *judge) compare() {
	ctx := context.Background()
	now := j.now
	want, others := j.want()
	j.pipe.Set(ctx, "now", now, 0)
	state := j.pipe.EvalSha(ctx, j.bench.state, j.keys.ofState(), 3500)
	var clients []string
	for _, h := range want.Holders {
		clients = append(clients, clientOf(h.ID))
	}
	for _, w := range want.Waiters {
		clients = append(clients, clientOf(w.ID))
	}
	slices.Sort(clients)
	who := map[string]*redis.StringCmd{}
	for _, c := range slices.Compact(clients) {
		who[c] = j.pipe.Get(ctx, j.keys.client(c))
	}
	raw := j.pipe.HGet(ctx, j.keys.state(), "")
	reports, wantReports := j.pipe.HGetAll(ctx, j.keys.reports()), j.ledger.Reports(now)
	wantReports.Limit, wantReports.Pinned = want.Limit, want.Pinned
	keyed, rates := j.pipe.HGet(ctx, j.keys.all[8], ""), map[string]string{}
	for pool, r := range j.ledger.Save().Rates { // of those that are all back nothing else counts
		if r.Full <= float64(now) {
			continue
		}
		rates[pool] = fmt.Sprintf("%.17g %.17g", r.Full, r.Given)
	}
	count := j.pipe.EvalSha(ctx, j.count, append(j.keys.all[:mainKeys:mainKeys], j.keys.all[describedKeys:keyedKeys]...))
	j.verdicts = append(j.verdicts, func(t failer) {
		r := decoded(t, state)
		if !r.whole {
			t.Fatalf("at %d: not all was read", now)
		}
		same(t, now, r, want, others, func(client string) string {
			if who[client] == nil {
				return ""
			}
			return who[client].Val()
		})
		counts(t, now, count)
		stored := map[string]string{}
		if parts := strings.Split(keyed.Val()[min(80, len(keyed.Val())):], "\x00"); len(parts) == 4 {
			for rate := range strings.SplitSeq(parts[3], ",") {
				pool, is, _ := strings.Cut(rate, "=")
				if full, _, _ := strings.Cut(is, " "); full > strconv.FormatInt(now, 10) { // both have 16 digits
					stored[pool] = is
				}
			}
		}
		if want.Limit > 0 && !maps.Equal(stored, rates) {
			t.Fatalf("at %d\nscript %v\nledger %v", now, stored, rates)
		}
		if got := decodeReports(now, raw.Val(), reports.Val()); got.Limit != want.Limit && want.Limit > 0 || !reflect.DeepEqual(got, wantReports) {
			t.Fatalf("at %d\nscript %+v\nledger %+v", now, got, wantReports)
		}
	})
}

func decoded(t failer, state *redis.Cmd) *reading {
	values, err := state.Slice()
	if err != nil {
		t.Fatal(err)
	}
	r, err := decodeState(values)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func same(t failer, now int64, r *reading, want engine.State, others map[engine.ID]bool, who func(client string) string) {
	got := r.state()
	for client, list := range undescribed(&got) {
		for _, c := range list {
			_ = json.Unmarshal([]byte(who(client)), c)
		}
	}
	if got = anonymous(got, others); !reflect.DeepEqual(got, want) {
		t.Fatalf("at %d\nscript %+v\nledger %+v", now, got, want)
	}
}

// whole compares the state as State reads it: in one step if the semaphore is
// small, and in parts.
func (j *judge) whole(t *rapid.T) {
	ctx := context.Background()
	j.rdb.Set(ctx, "now", j.now, 0)
	want, others := j.want()
	saved := j.ledger.Save()
	written := len(saved.Holders) + len(saved.Waiters)
	for _, most := range []int{defaultReadSize, 0} {
		r := decoded(t, j.rdb.EvalSha(ctx, j.bench.state, j.keys.ofState(), most))
		all := len(want.Holders) + len(want.Waiters)
		if r.whole && all > most || !r.whole && most == defaultReadSize && written == 0 {
			t.Fatalf("at %d: at most %d in a step of %d; all were read: %v", j.now, most, all, r.whole)
		}
		if !r.whole {
			j.parts(t, r)
		}
		same(t, j.now, r, want, others, func(client string) string { return j.rdb.Get(ctx, j.keys.client(client)).Val() })
	}
}

// parts reads the permits and tickets as readParts does, at the test's time.
func (j *judge) parts(t *rapid.T, r *reading) {
	ctx := context.Background()
	for cursor, last := uint64(0), false; !last; last = cursor == 0 {
		found, next, err := j.rdb.HScan(ctx, j.keys.state(), cursor, "", 2).Result()
		if err != nil {
			t.Fatal(err)
		}
		var ends []float64
		if holders := permits(found); len(holders) > 0 {
			if ends, err = j.rdb.ZMScore(ctx, j.keys.holders(), holders...).Result(); err != nil {
				t.Fatal(err)
			}
		}
		r.add(j.now, found, ends)
		cursor = next
	}
}

// counts checks the script's counters against the entries: the weight held, the
// tickets, and one entry of the state for each.
func counts(t failer, now int64, count *redis.Cmd) {
	values, err := count.Slice()
	if err != nil {
		t.Fatal(err)
	}
	weight, holders := int64(0), int64(0)
	members, _ := values[4].([]any)
	for _, member := range members {
		name, _ := member.(string)
		if strings.HasPrefix(name, "This member") {
			continue
		}
		id, err := engine.ParseID(name)
		if err != nil {
			t.Fatal(err)
		}
		weight += int64(id.Weight)
		holders++
	}
	waiters := integer(values[3])
	got, want := []int64{integer(values[0]), integer(values[1]), integer(values[2])}, []int64{weight, waiters, holders + waiters}
	if !slices.Equal(got, want) {
		t.Fatalf("at %d the script counts %v for weight, tickets and both; there are %v", now, got, want)
	}
	if wrong, _ := values[5].([]any); len(wrong) > 0 {
		t.Fatalf("at %d the records of the keys %q have another weight or number of tickets than there are", now, wrong)
	}
}

// The bounds of lua/layout.lua.
const (
	mostTurns = 32
	mostEnds  = 128
	mostTold  = 128
)

// describer returns the description of client n.
func describer(n int) engine.Client {
	return engine.Client{Host: "host" + strconv.Itoa(n), PID: n, Label: strings.Repeat("l", n%3)}
}

func text(c engine.Client) string {
	b, _ := json.Marshal(c)
	return string(b)
}

func (j *judge) place(client string) int { return slices.Index(j.clients, client) }

// notice counts the rare cases that a call is about to meet.
func (j *judge) notice(client string, c protocol.Call) {
	for _, r := range c.Requests {
		if (r.Kind == protocol.Ask || r.Kind == protocol.Renew) && r.Who == nil && r.ID.Client != client && r.ID.Client != api {
			j.others[r.ID] = true
		}
	}
	over := 0
	j.ledger.Holders(func(id engine.ID, _ string, _ bool) {
		if _, _, holds := j.ledger.Permit(j.now, id); !holds {
			over++
		}
	})
	if over > mostEnds {
		j.ends.Add(1)
	}
}

// noticed counts the rare cases that a call has met, and notes what it told the
// client.
func (j *judge) noticed(client string, c protocol.Call, late bool, reply protocol.Reply, told map[string]protocol.Notification) {
	if late {
		return
	}
	if f := j.fences[client]; c.Number < f.number {
		j.bench.fences.Add(1)
	}
	if c.Fence {
		j.fences[client] = fencing{c.Number, j.now + 1_000_000_000}
	}
	for _, a := range reply.Answers {
		if a.Status == protocol.Granted && a.Slot == protocol.WouldWait {
			j.bench.wouldWait.Add(1)
		}
	}
	grants := len(reply.Notification.Grants)
	for _, n := range told {
		grants += len(n.Grants)
	}
	if grants == mostTurns {
		j.turns.Add(1)
	}
	if recalled(told) == mostTold {
		j.bench.told.Add(1)
	}
	j.keeps[client] = keeping{reply.Keep, j.now + c.Keep.Microseconds()}
}

// recalled counts the notified keepers.
func recalled(told map[string]protocol.Notification) (n int) {
	for _, news := range told {
		if news.Recall {
			n++
		}
	}
	return n
}

// someKeepers checks that the script and the ledger notify equally many keepers,
// and removes those notifications. With more keepers than a step notifies, the
// two may choose different ones.
func someKeepers(t failer, now int64, got, want map[string]protocol.Notification, keeps map[string]keeping) {
	if recalled(got) != recalled(want) {
		t.Fatalf("at %d %d keepers are told, want %d", now, recalled(got), recalled(want))
	}
	for client, n := range got {
		k := keeps[client]
		if n.Recall && (!k.may || k.end <= now) {
			t.Fatalf("at %d %s is told %+v, and was told before: %+v", now, client, n, k)
		}
	}
	for _, told := range []map[string]protocol.Notification{got, want} {
		for client, n := range told {
			if n.Recall = false; n.Empty() {
				delete(told, client)
			} else {
				told[client] = n
			}
		}
	}
}

func sameReply(a, b protocol.Reply) bool {
	return a.Limit == b.Limit && a.Caps == b.Caps && a.Room == b.Room && a.Watched == b.Watched && a.Recheck == b.Recheck && a.Unreachable == b.Unreachable && a.Keep == b.Keep && a.Recalled == b.Recalled &&
		slices.Equal(a.Answers, b.Answers) && sameNews(a.Notification, b.Notification)
}

// sameNews compares notifications, without the order of grants.
func sameNews(a, b protocol.Notification) bool {
	byToken := func(gs []protocol.Grant) []protocol.Grant {
		return slices.SortedFunc(slices.Values(gs), func(a, b protocol.Grant) int { return cmp.Compare(a.Token, b.Token) })
	}
	return a.Ask == b.Ask && a.Renew == b.Renew && a.Recheck == b.Recheck && a.Recall == b.Recall && slices.Equal(byToken(a.Grants), byToken(b.Grants))
}
