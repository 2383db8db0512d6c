package dashboard

import (
	"context"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"time"

	"sema"
	"sema/access"
	"sema/engine"
	"sema/internal/rights"
	"sema/internal/view"
)

// keyRow is one of the keys that share a semaphore, in one line.
type keyRow struct {
	view.Key
	Name          string
	Most, Longest string // its cap, and the longest wait of its callers
	Brief         string // Why, with a brief key
	Admin         bool
	Set, Unset    string // addresses; empty: there is nothing to do
}

// keyRows is how many keys a page has: their rows are short.
func (h *Handler) keyRows() int { return 2 * h.options.Rows }

// keys is a page of the keys of a semaphore, the one that most wait for first. What was
// found is since old.
func (h *Handler) keys(q semaphoreQuery, st engine.State, since time.Duration, a visitor) (rows []keyRow) {
	for _, k := range window(view.MostWaiting(view.KeysOf(st)), q.pages[keys], h.keyRows()) {
		row := keyRow{Key: k, Name: k.Key, Brief: briefIn(k.Why, k.Key), Most: "–", Longest: "–", Admin: rights.May(a.Who, rights.Admin)}
		if k.Cap > 0 {
			row.Most = strconv.Itoa(k.Cap)
		}
		if k.Waiting > 0 {
			row.Longest = brief(time.Duration(k.Oldest*float64(time.Second)) + since)
		}
		if row.Admin && k.Key != "" {
			row.Set = actAddress("set-key", q.name, "key", k.Key)
			if k.Ruled {
				row.Unset = actAddress("unset-key", q.name, "key", k.Key)
			}
		}
		rows = append(rows, row)
	}
	return rows
}

// wholeOf is a number of a form; 0 if it was left empty, which leaves the value as it is.
func wholeOf(v url.Values, field string) (int, error) {
	if v.Get(field) == "" {
		return 0, nil
	}
	n, err := strconv.Atoi(v.Get(field))
	if err != nil {
		return 0, fmt.Errorf("%s %q: want a whole number", field, cut(v.Get(field), 60))
	}
	return n, nil
}

// keyNow is what a semaphore has of a key.
func keyNow(st engine.State, key string) engine.KeyState {
	if i := slices.IndexFunc(st.Keys, func(k engine.KeyState) bool { return k.Key == key }); i >= 0 {
		return st.Keys[i]
	}
	return engine.KeyState{Key: key, Cap: st.PerKey, Share: engine.DefaultShare}
}

// ruleNow returns the part of a key's rule that differs from the rule of all keys.
func ruleNow(st engine.State, key string) (rule sema.Rule) {
	k := keyNow(st, key)
	if k.Ruled && k.Cap != st.PerKey {
		rule.Limit = k.Cap
	}
	if k.Share != engine.DefaultShare {
		rule.Share = k.Share
	}
	return rule
}

// setKey and unsetKey are what operators do about a key.
var (
	setKey = kind{
		button: "Set cap and share",
		title:  func(access.Record) string { return "Set the cap and the share of this key?" },
		note: func(x access.Record, st engine.State) string {
			return keyNote(x, st) + " A field that is left empty stays as it is. A larger cap or share serves those who wait at once; " +
				"a smaller cap takes no permit away, and waiters that weigh more than it fail. It outlives idleness, until it is unset."
		},
		do: func(ctx context.Context, o *sema.Operator, x access.Record) error {
			return o.Set(ctx, sema.Rule{Limit: x.Cap, Share: x.Share}, x.Key)
		},
		undo: undoKey,
		done: "The cap and the share of the key are set.",
	}
	unsetKey = kind{
		button: "Unset cap and share",
		title:  func(access.Record) string { return "Unset the cap and the share of this key?" },
		note: func(x access.Record, st engine.State) string {
			return fmt.Sprintf("%s Then it has what all keys have: %s, and a share of %d.", keyNote(x, st), capOf(st.PerKey), engine.DefaultShare)
		},
		do:   func(ctx context.Context, o *sema.Operator, x access.Record) error { return o.Unset(ctx, x.Key) },
		undo: undoKey,
		done: "The key has what all keys have.",
	}
)

func keyNote(x access.Record, st engine.State) string {
	k := keyNow(st, x.Key)
	return fmt.Sprintf("It holds %d now, with %s and a share of %d.", k.Held, capOf(k.Cap), k.Share)
}

// capOf is a cap in words.
func capOf(n int) string {
	if n == 0 || n == engine.MaxLimit {
		return "no cap"
	}
	return fmt.Sprintf("a cap of %d", n)
}
