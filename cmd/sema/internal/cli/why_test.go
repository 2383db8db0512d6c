package cli

import (
	"testing"

	"sema/engine"
)

// A rule of a key that nobody uses gives the callers of the key above no queue of their own yet: the first caller
// below that key waits behind them.
func TestWhyForeseesBesideAnUnusedRule(t *testing.T) {
	acme, alice, bob := engine.Key("acme"), engine.Key("acme\x01alice"), engine.Key("acme\x01bob")
	st := engine.State{
		Limit: 6, Used: 5, Keys: []engine.KeyState{{Key: acme, Waiting: 1, Share: 100, InTurn: true}, {Key: alice, Cap: 2, Share: 100, Ruled: true}},
		Waiters: []engine.Waiter{{ID: "a-1-2", Key: acme, Weight: 2}},
	}
	for key, want := range map[engine.Key]string{
		alice: "keys before acme/alice: 1; 5 of 6 held, 2 wanted", bob: "keys before acme/bob: 1; 5 of 6 held, 2 wanted", acme: "behind 1 other of acme; 5 of 6 held, 2 wanted",
	} {
		if w := whyOf(st, "", key, "", 2); w.reason != want || w.position == 0 {
			t.Errorf("%v: %d, %q, want %q", key, w.position, w.reason, want)
		}
	}
}
