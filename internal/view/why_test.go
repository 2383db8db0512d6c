package view_test

import (
	"testing"

	"sema/engine"
	"sema/internal/view"
)

// keyed returns the state of a semaphore with keys and a limit of 10.
func keyed(used int, keys ...engine.KeyState) engine.State {
	return engine.State{Limit: 10, Used: used, Keys: keys}
}

func TestWhy(t *testing.T) {
	queue := func(weights ...int) (list []engine.Waiter) {
		for _, w := range weights {
			list = append(list, engine.Waiter{Weight: w})
		}
		return list
	}
	for _, c := range []struct {
		name           string
		st             engine.State
		weight, before int
		want           string
		key            engine.Key
	}{
		{"free", engine.State{Limit: 3, Used: 1}, 2, 0, "served now", ""},
		{"too heavy", engine.State{Limit: 3, Paused: true}, 4, 0, "never: weight 4 is above the limit 3", ""},
		{"paused", engine.State{Limit: 3, Paused: true, Waiters: queue(1)}, 1, 1, "paused by an operator", ""},
		{"heavy head", engine.State{Limit: 3, Used: 1, Waiters: queue(3)}, 1, 1, "behind 1 other; the first wants 3, 2 of 3 free", ""},
		{"behind", engine.State{Limit: 3, Used: 3, Waiters: queue(1, 1)}, 1, 2, "behind 2 others", ""},
		{"about to be served", engine.State{Limit: 3, Used: 1, Waiters: queue(1)}, 1, 1, "behind 1 other", ""},
		{"lowered", engine.State{Limit: 2, Used: 3}, 1, 0, "next in line; 3 held, more than the limit 2", ""},
		{"wants more", engine.State{Limit: 3, Used: 2}, 2, 0, "next in line; wants 2, 1 of 3 free", ""},
		{"full", engine.State{Limit: 1, Used: 1}, 1, 0, "next in line; 0 of 1 free", ""},
		{"above the cap", keyed(5, engine.KeyState{Key: "acme", Cap: 2}), 3, 0, "never: weight 3 is above the 2 that acme may hold", "acme"},
		{"full", keyed(5, engine.KeyState{Key: "acme", Cap: 2, Held: 2, Full: true}), 1, 0, "acme holds 2 of its 2", "acme"},
		{"behind in a full key", keyed(5, engine.KeyState{Key: "acme", Cap: 2, Held: 2, Full: true}), 1, 3, "behind 3 others of acme; acme holds 2 of its 2", "acme"},
		{"keys before", keyed(5, engine.KeyState{Key: "acme", Before: 7}), 1, 0, "7 keys go before acme", "acme"},
		{"a key before", keyed(5, engine.KeyState{Key: "", Before: 1}), 1, 0, "1 key goes before the caller without a key", ""},
		{"the next key", keyed(7, engine.KeyState{Key: "acme"}), 10, 0, "acme is next; wants 10, 3 of 10 free", "acme"},
	} {
		if got := view.Why(c.st, c.key, c.weight, c.before); got != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}
