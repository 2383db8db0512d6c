package redisengine_test

import (
	"encoding/json"
	"strconv"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"sema/engine"
	"sema/engines/redisengine"
	"sema/internal/fixture/expect"
	"sema/internal/fixture/redistest"
	"sema/internal/fixture/versions"
	"sema/internal/protocol"
)

// stored is a semaphore's data in Redis: hashes and zsets by key.
type stored map[string]struct {
	Hash map[string][]byte `json:"hash,omitempty"`
	Zset []member          `json:"zset,omitempty"`
}

type member struct {
	Name  []byte `json:"name"`
	Score string `json:"score"`
}

func store(t *testing.T, rdb *redis.Client) stored {
	all := stored{}
	for _, key := range rdb.Keys(expect.Within(t), "*").Val() {
		one := all[key]
		switch rdb.Type(expect.Within(t), key).Val() {
		case "hash":
			one.Hash = map[string][]byte{}
			for field, value := range rdb.HGetAll(expect.Within(t), key).Val() {
				one.Hash[field] = []byte(value)
			}
		case "zset":
			for _, z := range rdb.ZRangeWithScores(expect.Within(t), key, 0, -1).Val() {
				one.Zset = append(one.Zset, member{[]byte(z.Member.(string)), strconv.FormatFloat(z.Score, 'f', -1, 64)})
			}
		case "string":
			continue // descriptions, which have a time to live of their own
		}
		all[key] = one
	}
	return all
}

func (all stored) restore(t *testing.T, rdb *redis.Client) {
	for key, one := range all {
		for field, value := range one.Hash {
			expect.OK(t, rdb.HSet(expect.Within(t), key, field, value).Err())
		}
		for _, m := range one.Zset {
			expect.OK(t, rdb.Do(expect.Within(t), "zadd", key, m.Score, m.Name).Err())
		}
	}
}

// long is the lease of the fixtures, which must not end while this test is in
// use.
const long = 60 * 365 * 24 * time.Hour

// makeLayout makes states with each kind of entry.
func makeLayout(t *testing.T) []byte {
	server := redistest.Start(t)
	rdb := server.Client()
	e, err := redisengine.New(rdb, nil)
	expect.OK(t, err)
	defer func() { _ = e.Close() }()
	number := uint64(0)
	session := func(name string) func(...protocol.Request) {
		s, err := e.Open(name, engine.Client{Host: "h", PID: 7, Label: "l"}, func(protocol.Notification) {})
		expect.OK(t, err)
		t.Cleanup(func() { _ = s.Close() })
		return func(all ...protocol.Request) {
			for i := range all {
				if r := &all[i]; r.Kind == protocol.Ask {
					r.Lease, r.Ticket, r.Wait = long, long, true
					if r.Who == nil {
						r.ID.Client = s.Client()
					}
				}
			}
			number++
			_, err := s.Step(whole, protocol.Call{Number: number, Requests: all, Keep: time.Minute, Fence: number == 1})
			expect.OK(t, err)
		}
	}
	ask := func(n uint64, weight int) protocol.Request {
		return protocol.Request{Kind: protocol.Ask, ID: engine.ID{Number: n, Weight: weight}, Limit: 4}
	}
	plain := session("plain")
	slot := ask(1, 2)
	slot.ID.Slot = true
	named := ask(2, 1)
	named.ID.Client, named.Who = "api", &engine.Client{Host: "other", PID: 9, Label: "m", Caller: "job 7", Lease: time.Minute}
	plain(slot, ask(3, 1))
	plain(ask(4, 1))
	plain(ask(5, 3), ask(6, 1))
	plain(protocol.Request{Kind: protocol.SetLimit, Limit: 4, Pin: true})
	plain(protocol.Request{Kind: protocol.Report, Totals: &protocol.Totals{Good: 5, Bad: 2, Waited: 1}})
	plain(named)
	keyed := session("keyed")
	for n, key := range []string{"acme", "acme", "beta", "", "acme", "beta\x01bob", "beta\x01bob"} {
		r := ask(uint64(n+1), 1)
		r.Key, r.Caps[0] = key, 1
		keyed(r)
	}
	keyed(protocol.Request{Kind: protocol.SetKey, Key: "beta", Cap: 2, Share: 300})
	b, err := json.MarshalIndent(store(t, rdb), "", " ")
	expect.OK(t, err)
	return append(b, '\n')
}

// Each release reads and changes the states of all layouts that earlier
// releases wrote.
func TestLayoutsOfStates(t *testing.T) {
	t.Parallel()
	for _, layout := range []string{"sem3"} {
		var all stored
		expect.OK(t, json.Unmarshal(versions.Fixture(t, layout+".redis.json", func() []byte { return makeLayout(t) }), &all))
		server := redistest.Start(t)
		all.restore(t, server.Client())
		e := patientAt(t, server.Addr())
		for _, name := range []string{"plain", "keyed"} {
			s, err := e.Open(name, engine.Client{}, func(protocol.Notification) {})
			expect.OK(t, err)
			t.Cleanup(func() { _ = s.Close() })
			st, err := s.State(expect.Within(t))
			expect.OK(t, err)
			for i := range st.Holders {
				st.Holders[i].Age, st.Holders[i].Left = 0, 0
			}
			for i := range st.Waiters {
				st.Waiters[i].Waiting = 0
			}
			versions.Reads(t, layout+"."+name+".state.json", st)
			// All permits and tickets are released; then the whole limit is free.
			var gone []protocol.Request
			for _, h := range st.Holders {
				id, err := engine.ParseID(h.ID)
				expect.OK(t, err)
				gone = append(gone, protocol.Request{Kind: protocol.Release, ID: id})
			}
			for _, w := range st.Waiters {
				id, err := engine.ParseID(w.ID)
				expect.OK(t, err)
				gone = append(gone, protocol.Request{Kind: protocol.Release, ID: id})
			}
			reply, err := s.Step(whole, protocol.Call{Number: 1, Requests: gone})
			expect.OK(t, err)
			for i, a := range reply.Answers {
				if a.Status != protocol.Done {
					t.Errorf("%s, %v: %v", name, gone[i].ID, a.Status)
				}
			}
			if after, err := s.State(expect.Within(t)); err != nil || after.Used != 0 || after.Waiting() != 0 {
				t.Errorf("%s: %+v, %v", name, after, err)
			}
		}
	}
}
