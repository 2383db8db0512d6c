package view_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"sema/engine"
	"sema/internal/view"
	"sema/watch"
)

// Each state of a semaphore has its sentence. What follows names who holds longest, and what else the waiters need.
func TestSay(t *testing.T) {
	holder := func(n int, label string, key engine.Key, takes engine.Pools, age time.Duration) engine.Holder {
		return engine.Holder{ID: fmt.Sprint("h-", n, "-1"), Weight: 1, Token: int64(n), Age: age, Key: key, Takes: takes, Client: engine.Client{Host: "web-3", Label: label}}
	}
	waiters := func(n int, takes engine.Pools, wait time.Duration) (list []engine.Waiter) {
		for i := range n {
			list = append(list, engine.Waiter{ID: fmt.Sprint("w-", i, "-1"), Weight: 1, Takes: takes, Waiting: wait, Client: engine.Client{Host: "web-4", Label: "late"}})
		}
		return list
	}
	one := []engine.Holder{holder(2, "newer", "", "", time.Second), holder(1, "job 0", "acme", "", 52*time.Second)}
	licence := []engine.Holder{holder(1, "training 1", "", "gpu=2", time.Hour), holder(2, "simulation 1", "", "gpu=1,licence=1", 59*time.Second)}
	pools := []engine.PoolState{{Pool: "gpu", Limit: 4, Used: 3}, {Pool: "licence", Limit: 1, Used: 1, Waiting: 1}}
	for _, c := range []struct {
		what  string
		st    engine.State
		known view.Known
		want  string
	}{
		{"open", engine.State{Limit: 5, Used: 3, Holders: one}, view.Known{Full: time.Hour}, "Open: 3 of 5 in use, nobody waits. The oldest holder is job 0 of acme on web-3 (52s)."},
		{"idle", engine.State{Limit: 5}, view.Known{}, "Idle: 0 of 5 in use, nobody waits."},
		{"full", engine.State{Limit: 300, Used: 300, Holders: one, Waiters: waiters(2000, "", 51*time.Second)}, view.Known{Since: time.Second, Full: 9 * time.Second, Usual: time.Second},
			"Full for 52s: 300 of 300 held, 2,000 wait. The oldest holder is job 0 of acme on web-3 (53s). Waits usually end within 1s."},
		{"full, as looks say", engine.State{Limit: 2, Used: 2, Holders: one, Waiters: waiters(1, "", time.Second)}, view.Known{Full: 6*time.Minute + 12*time.Second},
			"Full for 6m 12s: 2 of 2 held, 1 waits. The oldest holder is job 0 of acme on web-3 (52s)."},
		{"full a moment ago", engine.State{Limit: 2, Used: 2, Holders: one}, view.Known{}, "Full: 2 of 2 held, nobody waits. The oldest holder is job 0 of acme on web-3 (52s)."},
		{"above", engine.State{Limit: 6, Used: 7, Holders: one}, view.Known{}, "1 above the limit: 7 of 6 held, nobody waits. The oldest holder is job 0 of acme on web-3 (52s)."},
		{"only watched", engine.State{Limit: 6, Used: 7, Observed: &engine.Observed{Grants: 9000, WouldWait: 1204, ForLimit: 1204, Most: 34, Enough: 31}}, view.Known{}, "Only watched: 7 of 6 held, nobody waits. 1,204 of 9,000 would have waited, up to 28 at once; a limit of 31 is enough for 99 %."},
		{"paused", engine.State{Limit: 4, Used: 1, Paused: true, Waiters: waiters(3, "", time.Second)}, view.Known{Paused: 12 * time.Minute, By: "bob"}, "Paused by bob for 12m 00s: 1 of 4 held, 3 wait."},
		{"paused by somebody", engine.State{Limit: 4, Used: 4, Paused: true}, view.Known{}, "Paused: 4 of 4 held, nobody waits."},
		{"in a cooldown", engine.State{Limit: 4, Used: 1, Cooldown: &engine.Cooldown{Left: 30 * time.Second, By: engine.Client{Host: "web-3", Label: "llm"}}, Waiters: waiters(14, "", time.Second)}, view.Known{Since: time.Second},
			"Nobody begins for 29s, said llm on web-3: 1 of 4 held, 14 wait."},
		{"after a cooldown", engine.State{Limit: 4, Cooldown: &engine.Cooldown{Left: time.Second}}, view.Known{Since: time.Second}, "Idle: 0 of 4 in use, nobody waits."},
		{"a pool is out", engine.State{Limit: 15, Used: 2, Holders: licence, Pools: pools, Waiters: append(waiters(1, "gpu=1,licence=1", time.Minute), waiters(1, "gpu=2", time.Second)...)}, view.Known{},
			"licence is out: 1 of 1 held by simulation 1, 1 waits for it. simulation 1 on web-3 has held it for 59s. late waits for: 3 of 4 of gpu held, 2 wanted, 1 reserved for a caller."},
		{"a rate is out", engine.State{Limit: 15, Used: 2, Holders: licence, Pools: []engine.PoolState{{Pool: "licence", Limit: 60, Back: 60, Per: time.Minute, Used: 60, Waiting: 1, Next: 9 * time.Second}}, Waiters: waiters(1, "licence=2", time.Minute)}, view.Known{Since: time.Second},
			"licence is out: 60 of 60/1m used, the next in 8s, 1 waits for it."},
		{"a pool is out that nobody waits for", engine.State{Limit: 15, Used: 2, Holders: licence, Pools: []engine.PoolState{{Pool: "licence", Limit: 1, Used: 1}}}, view.Known{},
			"Open: 2 of 15 in use, nobody waits. The oldest holder is training 1 on web-3 (1h 00m)."},
		{"a cap", engine.State{Limit: 5, Used: 5, Caps: engine.Caps{2}, Keys: []engine.KeyState{{Key: "acme", Held: 2, Waiting: 1, Cap: 2, Share: 100, Full: true}},
			Waiters: []engine.Waiter{{ID: "w-1-1", Weight: 1, Key: "acme", Behind: 1_233}}}, view.Known{},
			"Full: 5 of 5 held, 1,234 wait. 1,234 wait for acme, which holds 2 of its 2."},
		{"open, and a heavy one waits", engine.State{Limit: 5, Used: 3, Waiters: []engine.Waiter{{ID: "w-1-1", Weight: 3, Client: engine.Client{Label: "heavy"}}}}, view.Known{},
			"Open: 3 of 5 in use, 1 waits. heavy waits for: 3 of 5 held, 3 wanted."},
	} {
		c.known.Who = func(c engine.Client, _ string) (name, where string) { return c.Label, "on " + c.Host }
		look := view.LookAt(c.st)
		say := look.Say(watch.Summarize("x", time.Time{}, c.st), look.Rows(), c.known)
		got := strings.TrimSpace(fmt.Sprintf("%s: %s, %s. %s", say.Head, say.Held, say.Wait, strings.Join(say.More, " ")))
		if got != c.want {
			t.Errorf("%s:\n%s\nwant\n%s", c.what, got, c.want)
		}
	}
}

func TestNumbers(t *testing.T) {
	for n, want := range map[int]string{0: "0", 999: "999", 1000: "1,000", 999_999: "999,999", 2147483647: "2,147,483,647", -1234: "-1,234", -123: "-123"} {
		if got := view.Number(n); got != want {
			t.Errorf("%d: %s", n, got)
		}
	}
}

func TestAdapting(t *testing.T) {
	st := engine.State{Limit: 37}
	if got := view.Adapts(st); got != "" {
		t.Errorf("nobody finds the limit, and it says %q", got)
	}
	st.Auto = &engine.Auto{Min: 2, Max: 200, Bad: 31}
	if got, want := view.Adapts(st), "adapting 2…200: 3.1 % of the time held was bad in the last window"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}
