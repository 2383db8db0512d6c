package dashboard

import (
	"cmp"
	"fmt"
	"html/template"
	"net/url"
	"strconv"
	"strings"
	"time"

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

// keyFields have the part of a key's rule that differs from the rule of all keys.
func keyFields(x access.Record, st engine.State, _ url.Values) (list []field) {
	if x.Key == "" {
		list = []field{{Name: "key", Label: "Key", Type: "text", Hint: "acme/alice", Title: "A slash is between names; within a name it is %2F, and a percent sign %25."}}
	}
	k := view.LookAt(st).Key(x.Key)
	share, limit := field{Name: "share", Label: "Share", Type: "number", Min: 1, Max: engine.MaxShare, Hint: "as it is"}, field{Name: "cap", Label: "Cap", Type: "number", Min: 1, Max: engine.MaxLimit, Hint: "as it is"}
	if k.Ruled && k.Cap != view.CapOf(st.Caps, x.Key) {
		limit.Value = strconv.Itoa(k.Cap)
	}
	if k.Share != engine.DefaultShare {
		share.Value = strconv.Itoa(k.Share)
	}
	return append(list, limit, share)
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
