package ledger

import (
	"fmt"
	"reflect"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"sema/engine"
	"sema/internal/protocol"
)

// A ledger that is saved and loaded between any two steps goes on as before: the
// file engine does so whenever it writes a log anew, and a replica has nothing else.
func TestSavedLedgerGoesOnAsBefore(t *testing.T) {
	clients := []string{"a.1", "b.1", "c.1"}
	rapid.Check(t, func(t *rapid.T) {
		number := func(what string, from, to int) int { return rapid.IntRange(from, to).Draw(t, what) }
		oneIn := func(what string, n int) bool { return number(what, 1, n) == n }
		client := func() string { return rapid.SampledFrom(clients).Draw(t, "client") }

		deaf := map[string]bool{}
		watched := rapid.Bool().Draw(t, "watched")
		keys := rapid.SampledFrom([][]engine.Key{{""}, {"", "x", "y", "z"}, {"", "x", "x\x01y", "x\x01z", "x\x01y\x01z", "y\x01z"}}).Draw(t, "keys")
		takes, pools := []engine.Pools{""}, []engine.Pools{""}
		if rapid.Bool().Draw(t, "pools") {
			takes, pools = []engine.Pools{"", "", "gpu=1", "gpu=2", "db=1", "db=1,gpu=1"}, []engine.Pools{"gpu=2", "db=1,gpu=3", "db=2,gpu=2"}
		}
		target := func() protocol.Target {
			return protocol.Target{Key: rapid.SampledFrom(keys).Draw(t, "key"), Takes: rapid.SampledFrom(takes).Draw(t, "takes")}
		}
		equip := func(l *Ledger) *Ledger { // sets the functions of the engine
			l.Reach, l.Watched = func(client string) bool { return !deaf[client] }, watched
			return l
		}
		kept, saved := equip(&Ledger{}), equip(&Ledger{})
		now := int64(1_800_000_000_000_000)
		both := func(what string, f func(l *Ledger) string) {
			written := saved.Save()
			saved = equip(Load(written))
			if again := saved.Save(); !reflect.DeepEqual(again, written) {
				t.Fatalf("before %s: written %+v\nand read as %+v", what, written, again)
			}
			if a, b := f(kept), f(saved); a != b {
				t.Fatalf("%s: kept %s\nsaved %s", what, a, b)
			}
		}
		told := func(l *Ledger) (text string) {
			news := l.Notifications()
			for _, c := range clients {
				if n := news[c]; n != nil {
					text += fmt.Sprintf(" %s: %+v", c, *n)
				}
			}
			return text
		}
		caps := func(least int) (c engine.Caps) {
			for i := range c {
				c[i] = number("cap of all", least, 3)
			}
			return c
		}
		request := func(caller string) protocol.Request {
			n := number("number", 1, 4)
			r := protocol.Request{
				Kind: rapid.SampledFrom([]protocol.Kind{
					protocol.Ask, protocol.Ask, protocol.Ask, protocol.Ask, protocol.Ask, protocol.Renew, protocol.Release, protocol.Release,
					protocol.Revoke, protocol.Revoke, protocol.SetLimit, protocol.UnsetLimit, protocol.Remove, protocol.Pause, protocol.Unpause, protocol.Unpause,
					protocol.SetKey, protocol.UnsetKey,
				}).Draw(t, "kind"),
				Target: target(),
				ID:     engine.ID{Client: caller, Number: uint64(n), Weight: 1 + n%3, Slot: n%2 == 0},
				Limit:  4, Lease: 20 * time.Millisecond,
			}
			if oneIn("another's", 6) {
				r.ID.Client = client()
			}
			if n == 4 { // a name for all
				r.ID.Client = "api"
			}
			switch r.Kind {
			case protocol.Ask:
				if n == 4 {
					r.Who = &engine.Client{Host: caller, Caller: "x", Lease: time.Second}
				}
				r.Ticket = time.Duration(number("ticket ms", 0, 2)) * 5 * time.Millisecond // 0: it lasts
				r.Waited = time.Duration(number("waited µs", 0, 20_000)) * time.Microsecond
				r.Wait, r.Unfair, r.Strict, r.Detached = !oneIn("try", 4), oneIn("unfair", 6), oneIn("strict", 6), oneIn("detached", 4)
				if len(keys) > 1 {
					r.Caps = caps(0)
				}
				r.Pools = rapid.SampledFrom(pools).Draw(t, "pools of all")
				r.Again, r.Anew, r.Newest, r.Behind = oneIn("again", 3), oneIn("anew", 4), oneIn("newest", 4), number("behind", 0, 3)
			case protocol.Renew, protocol.Release:
				if oneIn("passed on", 3) {
					r.Token = now + int64(number("ahead µs", 0, 5000))
				}
				r.Mine = (r.Kind == protocol.Release || r.Kind == protocol.Renew) && oneIn("mine", 2)
			case protocol.SetKey:
				r.Takes = ""
				r.Cap, r.Share = number("cap", 0, 3), number("share", 0, 3)*100
			case protocol.UnsetKey:
				r.Takes = ""
			case protocol.SetLimit:
				r.Caps = caps(-1)
				if len(pools) > 1 {
					r.Pools = rapid.SampledFrom([]engine.Pools{"", "gpu=0", "gpu=1", "db=3", "db=0,gpu=3"}).Draw(t, "set pools")
				}
				r.Limit, r.Pin = number("limit", 0, 6), oneIn("pin", 10)
			}
			return r
		}
		calls := uint64(0)
		t.Repeat(map[string]func(*rapid.T){
			"step": func(*rapid.T) {
				calls++
				caller := client()
				c := protocol.Call{Number: calls, Fence: oneIn("fence", 10)}
				if oneIn("late", 10) {
					c.Number = calls / 2
				}
				if oneIn("keep", 3) {
					c.Keep = time.Duration(number("keep ms", 1, 20)) * time.Millisecond
				}
				for range number("requests", 1, 3) {
					c.Requests = append(c.Requests, request(caller))
				}
				both("step", func(l *Ledger) string {
					return fmt.Sprintf("%+v", l.Step(now, caller, engine.Client{Host: "h"}, c)) + told(l)
				})
			},
			"reap": func(*rapid.T) {
				dead := client()
				both("reap", func(l *Ledger) string {
					l.Reap(now, func(client string) bool { return client == dead })
					return told(l)
				})
			},
			"reach": func(*rapid.T) { c := client(); deaf[c] = !deaf[c] },
			"time":  func(*rapid.T) { now += int64(number("µs", 1, 15_000)) },
			"": func(t *rapid.T) {
				st := kept.State(now)
				held := 0
				slots := map[int]bool{}
				for _, h := range st.Holders {
					held += h.Weight
					if h.Slot >= 0 && slots[h.Slot] {
						t.Fatalf("slot %d is held twice: %+v", h.Slot, st.Holders)
					}
					slots[h.Slot] = true
				}
				if held != st.Used {
					t.Fatalf("counts %d, holds %d", st.Used, held)
				}
				for _, k := range st.Keys { // in turn if it waits, is not full, and not all that wait below it are
					waits, some := false, false
					for _, b := range st.Keys {
						if k.Key != "" && b.Key.Above() == k.Key {
							waits, some = waits || b.Waiting > 0, some || b.InTurn
						}
					}
					if k.Waiting > 0 && k.InTurn != (!k.Full && (some || !waits)) || k.InTurn && k.Full {
						t.Fatalf("in turn: %v, of %+v in %+v", k.InTurn, k, st.Keys)
					}
				}
				if err := kept.keys.miscounted(kept); err != nil {
					t.Fatal(err)
				}
				if a, b := fmt.Sprintf("%+v", st), fmt.Sprintf("%+v", saved.State(now)); a != b {
					t.Fatalf("kept %s\nsaved %s", a, b)
				}
			},
		})
	})
}

// A call releases a permit, and behind the release asks for an older waiter of
// its own. The permit goes to that waiter, not to a later one that has a ticket
// already.
func TestAReleaseFindsTheOlderAskBehindIt(t *testing.T) {
	l := &Ledger{}
	id := func(client string, n uint64) engine.ID { return engine.ID{Client: client, Number: n, Weight: 1} }
	ask := func(id engine.ID, waited time.Duration) protocol.Request {
		return protocol.Request{Kind: protocol.Ask, ID: id, Limit: 1, Lease: time.Minute, Ticket: time.Minute, Waited: waited, Wait: true}
	}
	step := func(client string, number uint64, requests ...protocol.Request) protocol.Reply {
		return l.Step(int64(1_000_000+number), client, engine.Client{}, protocol.Call{Number: number, Requests: requests})
	}
	step("a", 1, ask(id("a", 1), 0))
	step("b", 2, ask(id("b", 1), 0))
	reply := step("a", 3, protocol.Request{Kind: protocol.Release, ID: id("a", 1)}, ask(id("a", 2), time.Second))
	if got := reply.Answers[1].Status; got != protocol.Granted {
		t.Errorf("the older one is answered %d, and %+v is told", got, l.Notifications())
	}
}

// A large semaphore on Redis is read in parts, its keys first. Keys that began to wait since then have no seats.
// One of them may move because a lease has ended.
func TestKeysWithoutSeatsAreListedOnce(t *testing.T) {
	id := func(n uint64) engine.ID { return engine.ID{Client: "c", Number: n, Weight: 1} }
	st := Load(Snapshot{
		Limit: 2, Keep: 1 << 60, Keyed: true, Seq: 7,
		Holders: []Recorded{{ID: id(1), Target: protocol.Target{Key: "a"}, End: 1000, Slot: -1}, {ID: id(2), Target: protocol.Target{Key: "b"}, End: 5, Slot: -1}},
		Waiters: []Recorded{{ID: id(3), Target: protocol.Target{Key: "a"}, Place: 2, End: 1000}, {ID: id(4), Target: protocol.Target{Key: "b"}, Place: 3, End: 1000}},
		Keys:    []RecordedKey{{Name: "a"}, {Name: "b"}},
	}).State(10)
	var got []string
	for _, w := range st.Waiters {
		got = append(got, string(w.Key))
	}
	if slices.Sort(got); !slices.Equal(got, []string{"a", "b"}) {
		t.Errorf("of keys a and b, these wait: %q", got)
	}
}

// miscounted adds up the permits and tickets below each key, and compares. It also finds a key in the
// wrong place, and one that is remembered for nothing.
func (ks *tree) miscounted(l *Ledger) error {
	type sums struct{ held, waiting, below int }
	want, ready := map[*key]sums{}, 0
	add := func(k *key, held, waiting int) {
		for n := k.leaf(); n != nil; n = n.up {
			s := want[n]
			want[n] = sums{s.held + held, s.waiting + waiting, s.below}
		}
	}
	for _, h := range l.holders {
		add(h.key, h.weight, 0)
	}
	for _, t := range l.tickets {
		add(t.key, 0, 1)
	}
	for _, k := range ks.named {
		s := want[k.up]
		s.below++
		want[k.up] = s
	}
	for _, k := range append(ks.sorted(), &ks.root) {
		is := sums{k.held, 0, k.below}
		if k == &ks.root {
			is.held = l.used
		}
		for _, c := range k.classes {
			is.waiting += c.waiting
		}
		if is != want[k] {
			return fmt.Errorf("key %q counts %+v, and it is %+v", k.name, is, want[k])
		}
		if k.depth > 0 && k.unused() {
			return fmt.Errorf("key %q is remembered for nothing", k.name)
		}
		for _, c := range k.classes {
			if c.state == runnable && slices.Index(k.up.class(c.set).runnable, c) != k.up.class(c.set).indexRunnable(c) || c.state == blocked && slices.Index(ks.blocked, c) != ks.indexBlocked(c) {
				return fmt.Errorf("class %q is not where it belongs", c.text())
			}
			ready += bit(c.state == runnable && k.own == nil)
		}
	}
	if ready != ks.runnable {
		return fmt.Errorf("%d classes of leaves are runnable, and %d count", ready, ks.runnable)
	}
	return nil
}

// A hundred callers died in the queue, and one step drops fewer of their tickets. The next step is that of somebody who lives: of the
// caller who asks, or of one who waits while another releases.
func TestTheDeadInTheQueueDelayNobody(t *testing.T) {
	for _, comes := range []string{"later", "before the release"} {
		l := &Ledger{Reach: func(client string) bool { return client != "dead" }}
		now, calls := int64(1_000_000), uint64(0)
		step := func(client string, number uint64, kind protocol.Kind) (protocol.Status, bool) {
			calls++
			r := protocol.Request{Kind: kind, ID: engine.ID{Client: client, Number: number, Weight: 1}, Limit: 1, Lease: time.Hour, Ticket: time.Minute, Wait: true}
			if client != "dead" {
				r.Ticket = time.Hour
			}
			reply := l.Step(now, client, engine.Client{}, protocol.Call{Number: calls, Requests: []protocol.Request{r}})
			n, goes := l.Notifications()["lives"], reply.Notification.Recheck == protocol.AtOnce
			return reply.Answers[0].Status, goes || n != nil && n.Recheck == protocol.AtOnce
		}
		step("holds", 1, protocol.Ask)
		for i := range uint64(100) {
			step("dead", i+1, protocol.Ask)
		}
		if comes != "later" {
			step("lives", 1, protocol.Ask)
		}
		now += 2 * time.Minute.Microseconds()
		_, goes := step("holds", 1, protocol.Release)
		is, steps := protocol.Queued, 0
		for goes || comes == "later" && steps == 0 {
			is, goes = step("lives", 1, protocol.Ask)
			steps++
		}
		if is != protocol.Granted || steps > 100/maxBudget+1 {
			t.Errorf("who comes %s: status %v after %d steps", comes, is, steps)
		}
	}
}
