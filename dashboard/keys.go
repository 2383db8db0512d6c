package dashboard

import (
	"cmp"
	"context"
	"fmt"
	"html/template"
	"net/url"
	"strconv"
	"strings"
	"time"

	"sema"
	"sema/access"
	"sema/engine"
	"sema/internal/view"
)

// keyRow is one of the keys that share a semaphore, in one line.
type keyRow struct {
	view.Key
	Bar     template.HTML
	Short   string // the last of its names, if the key above has a row before
	Longest string // the longest wait of its callers
	Change  string // address; empty: not the visitor's to do
}

// keys is a page of the keys of a semaphore, each followed by those below it, and the one that most wait for
// first. Bars have the same scale. What was found is since old.
func (h *Handler) keys(q semaphoreQuery, tree []view.Key, limit int, since time.Duration, admin bool) (rows []keyRow) {
	scale := 1
	for _, k := range tree {
		scale = max(scale, k.Held, min(cmp.Or(k.Cap, limit), limit))
	}
	for i, k := range window(tree, q.pages[keys], h.rows(q)) {
		row := keyRow{Key: k, Bar: bar(k.Held, min(cmp.Or(k.Cap, limit), limit), scale), Short: view.Title(k.Key)}
		if names := k.Key.Names(); i > 0 && len(names) > 1 {
			if row.Short = names[len(names)-1]; k.Key.Own() {
				row.Short = "itself"
			}
		}
		if k.Waiting > 0 {
			row.Longest = view.Brief(time.Duration(k.Oldest*float64(time.Second)) + since)
		}
		if admin && k.Key != "" && !k.Key.Own() {
			row.Change = actAddress("set-key", q.name, "key", k.Key.String())
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
		title: func(x access.Record) string {
			if x.Key == "" {
				return "Set the cap and the share of a key"
			}
			return "Set the cap and the share of " + x.Key.String()
		},
		note: func(x access.Record, st engine.State) string {
			return keyNote(x, st) + "A field that is left empty stays as it is. A larger cap or share serves those who wait at once; " +
				"a smaller cap takes no permit away, and waiters that weigh more than it fail. It outlives idleness, until it is unset."
		},
		fields: func(x access.Record, st engine.State, _ url.Values) (list []field) {
			now := ruleNow(st, x.Key)
			if x.Key == "" {
				list = append(list, field{Name: "key", Label: "Key", Type: "text", Value: "", Hint: "acme/alice", Title: "A slash is between names; within a name it is %2F, and a percent sign %25."})
			}
			return append(list, field{Name: "cap", Label: "Cap", Type: "number", Min: 1, Max: engine.MaxLimit, Value: filled(now.Limit), Hint: "as it is"},
				field{Name: "share", Label: "Share", Type: "number", Min: 1, Max: engine.MaxShare, Value: filled(now.Share), Hint: "as it is"})
		},
		do: func(ctx context.Context, o *sema.Operator, x access.Record) error {
			return o.Set(ctx, sema.Rule{Limit: x.Cap, Share: x.Share}, x.Key.Names()...)
		},
		undo: undoKey,
		done: "The cap and the share of the key are set.",
	}
	unsetKey = kind{
		button: "Unset cap and share",
		title:  func(x access.Record) string { return "Unset the cap and the share of " + x.Key.String() + "?" },
		note: func(x access.Record, st engine.State) string {
			return fmt.Sprintf("%sThen it has what all keys have: %s, and a share of %d.", keyNote(x, st), capOf(view.CapOf(st.Caps, x.Key)), engine.DefaultShare)
		},
		do: func(ctx context.Context, o *sema.Operator, x access.Record) error {
			return o.Unset(ctx, x.Key.Names()...)
		},
		undo: undoKey,
		done: "The key has what all keys have.",
	}
)

func keyNote(x access.Record, st engine.State) string {
	if x.Key == "" {
		return ""
	}
	k := view.LookAt(st).Key(x.Key)
	return fmt.Sprintf("It holds %d now, with %s and a share of %d. ", k.Held, capOf(k.Cap), k.Share)
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
