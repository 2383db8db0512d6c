package tree_test

import (
	"fmt"
	"strings"
	"testing"

	"sema/engine"
	"sema/internal/tree"
)

// key makes a key of names with slashes between. A slash at the end stands for a key's own callers.
func key(text string) engine.Key {
	return engine.Key(strings.ReplaceAll(text, "/", engine.KeySeparator))
}

func TestLevels(t *testing.T) {
	for _, c := range []struct {
		key, above string
		level      int
		own        bool
	}{
		{"", "", 1, false}, {"acme", "", 1, false}, {"acme/", "acme", 2, true}, {"acme/alice", "acme", 2, false},
		{"acme/alice/", "acme/alice", 3, true}, {"acme/alice/gpt", "acme/alice", 3, false},
	} {
		if k := key(c.key); tree.Level(k) != c.level || tree.Above(k) != key(c.above) || tree.Own(k) != c.own {
			t.Errorf("%q: level %d, above %q, own %v", c.key, tree.Level(k), tree.Above(k), tree.Own(k))
		}
	}
}

func TestIn(t *testing.T) {
	for _, c := range []struct {
		callers, key string
		want         bool
	}{
		{"", "", true}, {"acme", "", false}, {"acme", "acme", true}, {"acme/alice", "acme", true}, {"acme", "acme/", true},
		{"acme/alice", "acme/", false}, {"acme", "acme/alice", false}, {"acmeco", "acme", false}, {"acme/alice/gpt", "acme", true},
	} {
		if got := tree.In(key(c.callers), key(c.key)); got != c.want {
			t.Errorf("%q in %q: %v", c.callers, c.key, got)
		}
	}
}

// A key whose waiters all wait below, at caps there, is not in turn: it holds up nobody.
func TestInTurn(t *testing.T) {
	type k = engine.KeyState
	for _, c := range []struct {
		name string
		keys []engine.KeyState
		want string
	}{
		{"none", nil, "[]"},
		{"one level", []k{{Key: "", Waiting: 1}, {Key: "a"}, {Key: "b", Waiting: 1, Full: true}}, "[true false false]"},
		{"below", []k{{Key: key("a"), Waiting: 2}, {Key: key("a/x"), Waiting: 1}, {Key: key("a/y"), Waiting: 1, Full: true}}, "[true true false]"},
		{"all below full", []k{{Key: key("a/x"), Waiting: 1, Full: true}, {Key: key("a"), Waiting: 1}}, "[false false]"},
		{"own callers", []k{{Key: key("a"), Waiting: 2}, {Key: key("a/"), Waiting: 1}, {Key: key("a/x"), Waiting: 1, Full: true}}, "[true true false]"},
		{"full above one in turn", []k{{Key: key("a"), Waiting: 1, Full: true}, {Key: key("a/x"), Waiting: 1}}, "[false true]"},
		{"three levels", []k{{Key: key("a"), Waiting: 1}, {Key: key("a/x"), Waiting: 1}, {Key: key("a/x/m"), Waiting: 1, Full: true}, {Key: key("a/y"), Held: 3}}, "[false false false false]"},
		{"another key's", []k{{Key: key("a/x"), Waiting: 1, Full: true}, {Key: key("b"), Waiting: 1}}, "[false true]"},
	} {
		if got := fmt.Sprint(tree.InTurn(c.keys)); got != c.want {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
	}
}
