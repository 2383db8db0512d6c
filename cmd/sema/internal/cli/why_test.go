package cli

import (
	"fmt"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"sema/engine"
	"sema/engines/memengine"
	"sema/internal/fixture/expect"
	"sema/internal/protocol"
	"sema/internal/view"
)

// full is what is said of a key at its cap.
var full = regexp.MustCompile(`\S+ holds \d+ of its \d+(, \d+ wanted)?(, the rest |;|$)`)

// TestWhyForesees has runs ask after sema why has foreseen their position, the full keys of their paths, and
// whether their weight, or what they take of pools, is too large. It leaves out the order among keys that hold as much,
// and among those who take different pools: a snapshot does not tell it. Nobody who waits is said to be served.
func TestWhyForesees(t *testing.T) {
	outcomes := map[string]int{}
	for world := range uint64(800) {
		draw := rand.New(rand.NewPCG(world, 1))
		e := memengine.New()
		s, err := e.Open("x", engine.Client{}, func(protocol.Notification) {})
		expect.OK(t, err)
		number := uint64(0)
		step := func(r protocol.Request) protocol.Answer {
			number++
			r.ID.Client, r.ID.Number = s.Client(), number
			reply, err := s.Step(t.Context(), protocol.Call{Number: number, Requests: []protocol.Request{r}})
			expect.OK(t, err)
			return reply.Answers[0]
		}
		depth := draw.IntN(engine.MaxDepth) + 1
		key := func() engine.Key {
			var names []string
			for range draw.IntN(depth + 1) {
				names = append(names, string(rune('a'+draw.IntN(2))))
			}
			return engine.Key(strings.Join(names, engine.KeySeparator))
		}
		caps := engine.Caps{draw.IntN(5), draw.IntN(4), draw.IntN(3)}
		pools := engine.Pools([]string{"", "db=3,gpu=2"}[world%2])
		take := func() engine.Pools {
			amounts := map[string]int{}
			for pool := range pools.All() {
				if n := draw.IntN(5) - 1; n > 0 {
					amounts[pool] = n
				}
			}
			if world%2 == 1 && draw.IntN(20) == 0 {
				amounts["tpu"] = 1 // there is none
			}
			takes, err := engine.NewPools(amounts, 1)
			expect.OK(t, err)
			return takes
		}
		ask := func(key engine.Key, takes engine.Pools, weight int) (string, protocol.Answer) {
			a := step(protocol.Request{Kind: protocol.Ask, ID: engine.ID{Weight: weight}, Target: protocol.Target{Key: key, Takes: takes}, Limit: 6, Caps: caps, Pools: pools, Lease: time.Hour, Ticket: time.Hour, Wait: true})
			return engine.ID{Client: s.Client(), Number: number, Weight: weight}.String(), a
		}
		ask("", "", 1)
		for range draw.IntN(14) {
			if k := key(); k != "" && draw.IntN(4) == 0 {
				step(protocol.Request{Kind: protocol.SetKey, Target: protocol.Target{Key: k}, Cap: draw.IntN(5), Share: []int{50, 100, 300}[draw.IntN(3)]})
			} else {
				ask(k, take(), draw.IntN(3)+1)
			}
		}
		for range 4 {
			key, takes, weight := key(), take(), draw.IntN(3)+1
			before, err := s.State(t.Context())
			expect.OK(t, err)
			foreseen := whyOf(before, "", key, takes, weight)
			fullForOthers := slices.ContainsFunc(before.Keys, func(k engine.KeyState) bool {
				return pools != "" && k.Full && k.Held+weight <= k.Cap && strings.HasPrefix(string(key)+engine.KeySeparator, string(k.Key)+engine.KeySeparator)
			})
			id, answer := ask(key, takes, weight)
			after, err := s.State(t.Context())
			expect.OK(t, err)
			is := whyOf(after, id, "", "", 0)
			wrong, said := foreseen.position != is.position, full.FindAllString(foreseen.reason, -1)
			switch never := strings.HasPrefix(foreseen.reason, "never: "); {
			case answer.Status == protocol.TooHeavy || never:
				wrong = answer.Status != protocol.TooHeavy || !never
			case strings.HasPrefix(foreseen.reason, "behind "):
				wrong = wrong || fmt.Sprint(said) != fmt.Sprint(full.FindAllString(is.reason, -1))
			case strings.Contains(foreseen.reason, "keys before "), strings.Contains(foreseen.reason, " reserved for a caller"), fullForOthers: // not if both hold as much, and it waits for less
				wrong = false
			case is.position > 0:
				wrong = wrong || fmt.Sprint(said) != fmt.Sprint(full.FindAllString(is.reason, -1))
			}
			outcomes[fmt.Sprint(answer.Status == protocol.TooHeavy, is.position > 0, len(said))]++
			for _, w := range after.Waiters {
				if got := whyOf(after, w.ID, "", "", 0).reason; got == view.Served {
					t.Errorf("world %d: %s waits, and is %s in\n%+v\n%+v", world, w.ID, got, after.Keys, after.Waiters)
				}
			}
			if wrong {
				t.Errorf("world %d: %v, weight %d: %d, %s; foreseen: %d, %s in\n%+v", world, key, weight, is.position, is.reason, foreseen.position, foreseen.reason, before.Keys)
			}
		}
		expect.OK(t, s.Close())
		expect.OK(t, e.Close())
	}
	if len(outcomes) < 5 {
		t.Errorf("this shows little: %v", outcomes)
	}
}

// A rule of a key that nobody uses gives the callers of the key above no queue of their own yet: the first caller
// below that key waits behind them.
func TestWhyForeseesBesideAnUnusedRule(t *testing.T) {
	acme, alice, bob := engine.Key("acme"), engine.Key("acme\x01alice"), engine.Key("acme\x01bob")
	st := engine.State{
		Limit: 6, Used: 5, Keys: []engine.KeyState{{Key: acme, Waiting: 1, Share: 100, InTurn: true}, {Key: alice, Cap: 2, Share: 100, Ruled: true}},
		Waiters: []engine.Waiter{{ID: "a-1-2", Key: acme, Weight: 2}},
	}
	for key, want := range map[engine.Key]string{
		alice: "keys before acme/alice: 1; 5 of 6 held, 2 reserved for a caller of acme", bob: "keys before acme/bob: 1; 5 of 6 held, 2 reserved for a caller of acme", acme: "behind 1 other of acme; 5 of 6 held, 2 reserved for a caller of acme",
	} {
		if w := whyOf(st, "", key, "", 1); w.reason != want || w.position == 0 {
			t.Errorf("%v: %d, %q, want %q", key, w.position, w.reason, want)
		}
	}
}
