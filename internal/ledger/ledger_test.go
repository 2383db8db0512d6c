package ledger

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"

	"sema/engine"
)

// The file engine keeps a ledger as JSON between any two steps: nothing that
// matters may be lost on the way.
func TestSavedLedgerGoesOnAsBefore(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		kept, saved := &Ledger{}, &Ledger{}
		now := int64(1_800_000_000_000_000)
		id := func() engine.ID {
			return engine.ID{
				Client: rapid.SampledFrom([]string{"a.1", "b.1"}).Draw(t, "client"),
				Number: uint64(rapid.IntRange(1, 6).Draw(t, "number")),
				Slot:   rapid.Bool().Draw(t, "slot"), Weight: rapid.IntRange(1, 3).Draw(t, "weight"),
			}
		}
		both := func(what string, f func(l *Ledger) string) {
			data, err := json.Marshal(saved.Save())
			if err != nil {
				t.Fatal(err)
			}
			var s Snapshot
			if err := json.Unmarshal(data, &s); err != nil {
				t.Fatal(err)
			}
			saved = Load(s)
			if a, b := f(kept), f(saved); a != b {
				t.Fatalf("%s: kept %s\nsaved %s", what, a, b)
			}
		}
		request := func() engine.Request {
			r := engine.Request{
				Kind: rapid.SampledFrom([]engine.Kind{
					engine.Ask, engine.Ask, engine.Ask, engine.Renew, engine.Release, engine.Release,
					engine.Revoke, engine.SetLimit, engine.UnsetLimit, engine.Remove,
				}).Draw(t, "kind"),
				ID: id(), Limit: 4, Lease: 20 * time.Millisecond, Ticket: 10 * time.Millisecond,
				Waited: time.Duration(rapid.IntRange(0, 20_000).Draw(t, "waited µs")) * time.Microsecond,
				Wait:   rapid.Bool().Draw(t, "wait"),
			}
			if r.Kind == engine.SetLimit {
				r.Limit, r.Pin = rapid.IntRange(1, 6).Draw(t, "limit"), rapid.IntRange(0, 9).Draw(t, "pin") == 0
			}
			return r
		}
		number := uint64(0)
		t.Repeat(map[string]func(*rapid.T){
			"step": func(*rapid.T) {
				number++
				c := engine.Call{Number: number, Fence: rapid.IntRange(0, 9).Draw(t, "fence") == 0}
				if rapid.IntRange(0, 9).Draw(t, "late") == 0 {
					c.Number = number / 2
				}
				for range rapid.IntRange(1, 3).Draw(t, "requests") {
					c.Requests = append(c.Requests, request())
				}
				both("step", func(l *Ledger) string {
					text := fmt.Sprintf("%+v", l.Step(now, "a.1", engine.Client{Host: "h"}, c))
					if n := l.Notifications()["b.1"]; n != nil {
						text += fmt.Sprintf(" %+v", *n)
					}
					return text
				})
			},
			"time": func(*rapid.T) { now += int64(rapid.IntRange(1, 15_000).Draw(t, "µs")) },
			"": func(t *rapid.T) {
				st := kept.State(now)
				held := 0
				for _, h := range st.Holders {
					held += h.Weight
				}
				if held != st.Used {
					t.Fatalf("counts %d, holds %d", st.Used, held)
				}
				if a, b := fmt.Sprintf("%+v", st), fmt.Sprintf("%+v", saved.State(now)); a != b {
					t.Fatalf("kept %s\nsaved %s", a, b)
				}
			},
		})
	})
}

// What a call releases goes to its own older waiter, though that one asks behind
// the release: not to who came later and happens to have a ticket.
func TestAReleaseFindsTheOlderAskBehindIt(t *testing.T) {
	l := &Ledger{}
	id := func(client string, n uint64) engine.ID { return engine.ID{Client: client, Number: n, Weight: 1} }
	ask := func(id engine.ID, waited time.Duration) engine.Request {
		return engine.Request{Kind: engine.Ask, ID: id, Limit: 1, Lease: time.Minute, Ticket: time.Minute, Waited: waited, Wait: true}
	}
	step := func(client string, number uint64, requests ...engine.Request) engine.Reply {
		return l.Step(int64(1_000_000+number), client, engine.Client{}, engine.Call{Number: number, Requests: requests})
	}
	step("a", 1, ask(id("a", 1), 0))
	step("b", 2, ask(id("b", 1), 0))
	reply := step("a", 3, engine.Request{Kind: engine.Release, ID: id("a", 1)}, ask(id("a", 2), time.Second))
	if got := reply.Answers[1].Status; got != engine.Granted {
		t.Errorf("the older one is answered %d, and %+v is told", got, l.Notifications())
	}
}
