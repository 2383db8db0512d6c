package dashboard

import (
	"context"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"time"

	"sema"
	"sema/access"
	"sema/engine"
	"sema/internal/rights"
	"sema/internal/view"
	"sema/watch"
)

// keyRow is one of the keys that share a semaphore, in one line.
type keyRow struct {
	view.Key
	Most, Longest string // its cap, and the longest wait of its callers
	Brief         string // Why, with a brief key
	Admin         bool
	Set, Unset    string // addresses; empty: there is nothing to do
}

// keyRows is how many keys a page has: their rows are short.
func (h *Handler) keyRows() int { return 2 * h.options.Rows }

// keys is a page of the keys of a semaphore, each followed by those below it, and the one that most wait for
// first. What was found is since old.
func (h *Handler) keys(q semaphoreQuery, tree []view.Key, since time.Duration, a visitor) (rows []keyRow) {
	for _, k := range window(tree, q.pages[keys], h.keyRows()) {
		row := keyRow{Key: k, Brief: briefWhy(k.Why, k.First()), Most: "–", Longest: "–", Admin: rights.May(a.Who, rights.Admin)}
		if k.Cap > 0 {
			row.Most = strconv.Itoa(k.Cap)
		}
		if k.Waiting > 0 {
			row.Longest = brief(time.Duration(k.Oldest*float64(time.Second)) + since)
		}
		if row.Admin && k.Key != "" && !k.Key.Own() {
			row.Set = actAddress("set-key", q.name, "key", k.Key.String())
			if k.Ruled {
				row.Unset = actAddress("unset-key", q.name, "key", k.Key.String())
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

// ruleNow returns the part of a key's rule that differs from the rule of all keys.
func ruleNow(st engine.State, key engine.Key) (rule sema.Rule) {
	k := view.LookAt(st).Key(key)
	if k.Ruled && k.Cap != view.CapOf(st.Caps, key) {
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
			return o.Set(ctx, sema.Rule{Limit: x.Cap, Share: x.Share}, x.Key.Names()...)
		},
		undo: undoKey,
		done: "The cap and the share of the key are set.",
	}
	unsetKey = kind{
		button: "Unset cap and share",
		title:  func(access.Record) string { return "Unset the cap and the share of this key?" },
		note: func(x access.Record, st engine.State) string {
			return fmt.Sprintf("%s Then it has what all keys have: %s, and a share of %d.", keyNote(x, st), capOf(view.CapOf(st.Caps, x.Key)), engine.DefaultShare)
		},
		do: func(ctx context.Context, o *sema.Operator, x access.Record) error {
			return o.Unset(ctx, x.Key.Names()...)
		},
		undo: undoKey,
		done: "The key has what all keys have.",
	}
)

func keyNote(x access.Record, st engine.State) string {
	k := view.LookAt(st).Key(x.Key)
	return fmt.Sprintf("It holds %d now, with %s and a share of %d.", k.Held, capOf(k.Cap), k.Share)
}

// capOf is a cap in words.
func capOf(n int) string {
	if n == 0 || n == engine.MaxLimit {
		return "no cap"
	}
	return fmt.Sprintf("a cap of %d", n)
}

// listOf is caps as a change has them: each is set.
func listOf(caps engine.Caps) (list []*int) {
	for _, n := range caps {
		list = append(list, &n)
	}
	return list
}

// capsOf is the caps of a change in words.
func capsOf(list []*int) string {
	words := make([]string, len(list))
	for i, n := range list {
		switch words[i] = "-"; {
		case n == nil:
			words[i] = "as before"
		case *n > 0:
			words[i] = strconv.Itoa(*n)
		}
	}
	if text := strings.TrimRight(strings.Join(words, ","), "-,"); text != "" {
		return "caps " + text
	}
	return "no caps"
}

// keysFact says how many keys there are, level by level.
func keysFact(s watch.Summary) string {
	var words []string
	for level, n := range s.Keys {
		if n > 0 {
			words = append(words, fmt.Sprintf("%s%d: %d in turn, %d at their caps", [...]string{"", "below them ", "below those "}[level], n, s.InTurn[level], s.Full[level]))
		}
	}
	return strings.Join(words, "; ")
}
