package dashboard

import (
	"cmp"
	"context"
	"html/template"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"sema/engine"
	"sema/internal/history"
	"sema/internal/rights"
	"sema/internal/view"
	"sema/watch"
)

// listOrder is a way to sort the list.
type listOrder struct{ key, label string }

// orders are the columns that a list can be sorted by, the usual one first. The keys of the others
// are values of watch.Query.Order.
var orders = []listOrder{
	{"attention", "State"},
	{"name", "Semaphore"},
	{"use", "In use"},
	{"waiting", "Waiting"},
	{"oldest", "Oldest wait"},
}

// states are what a list can be limited to.
var states = []struct {
	key, label string
	match      func(*Handler, watch.Summary) bool
}{
	{"", "All", func(*Handler, watch.Summary) bool { return true }},
	{"attention", "Needs attention", func(h *Handler, s watch.Summary) bool { _, rank := h.rank(s); return rank >= attention }},
	{"waiting", "Waiting", func(_ *Handler, s watch.Summary) bool { return s.Waiting > 0 }},
	{"full", "Full", func(_ *Handler, s watch.Summary) bool { return s.Limit > 0 && s.Used >= s.Limit }},
	{"paused", "Paused", func(_ *Handler, s watch.Summary) bool { return s.Paused || s.Cooldown != nil }},
	{"idle", "Idle", func(_ *Handler, s watch.Summary) bool { return s.Limit > 0 && s.Used == 0 && s.Waiting == 0 }},
}

// listQuery is what the address of a list says.
type listQuery struct {
	find  string // words, in names and in what is known of clients
	state string
	sort  string
	page  int
}

func listQueryOf(v url.Values) listQuery {
	q := listQuery{sort: orders[0].key, page: pageOf(v, "page")}
	if find := v.Get("q"); engine.ValidateText("q", find, engine.MaxName) == nil {
		q.find = strings.TrimSpace(find)
	}
	for _, o := range orders {
		if v.Get("sort") == o.key {
			q.sort = o.key
		}
	}
	for _, s := range states {
		if v.Get("state") == s.key {
			q.state = s.key
		}
	}
	return q
}

// pageOf is a page's number, from 1.
func pageOf(v url.Values, key string) int {
	n, err := strconv.Atoi(v.Get(key))
	if err != nil || n < 1 || n > 1_000_000 {
		return 1
	}
	return n
}

// address leads to the list: the same for the same list.
func (q listQuery) address() string {
	if text := q.text(); text != "" {
		return "./?" + text
	}
	return "./"
}

// text is what an address has after its question mark.
func (q listQuery) text() string {
	v := url.Values{}
	for key, value := range map[string]string{"q": q.find, "state": q.state} {
		if value != "" {
			v.Set(key, value)
		}
	}
	if q.sort != orders[0].key {
		v.Set("sort", q.sort)
	}
	if q.page > 1 {
		v.Set("page", strconv.Itoa(q.page))
	}
	return v.Encode()
}

// in reports whether each word of the query is in one of these texts.
func (q listQuery) in(texts ...string) bool {
	all := strings.ToLower(strings.Join(texts, "\n")) // no word has a line break
	for _, word := range strings.Fields(strings.ToLower(q.find)) {
		if !strings.Contains(all, word) {
			return false
		}
	}
	return true
}

// has reports whether a caller is one that the query asks for.
func (q listQuery) has(c history.Caller) bool {
	return q.in(c.ID, c.Key.String(), c.Client.Caller, c.Client.Label, c.Client.Host)
}

// match is what the query leaves of a list. It counts into each state's number those that the rest of the query leaves.
func (h *Handler) match(q listQuery, counts []int) func(watch.Summary) bool {
	named := map[string]bool{}
	if q.find != "" {
		h.history.Here(func(c history.Caller) {
			if q.has(c) {
				named[c.Semaphore] = true
			}
		})
	}
	return func(s watch.Summary) (chosen bool) {
		if q.find != "" && !named[s.Name] && !q.in(s.Name) {
			return false
		}
		for i, state := range states {
			if state.match(h, s) {
				counts[i]++
				chosen = chosen || state.key == q.state
			}
		}
		return chosen
	}
}

// pager leads to the pages beside this one.
type pager struct {
	What             string
	Page, Pages      int
	First, Last, All int // rows
	Prev, Next, Many string
	Beyond           bool // there is no such page, or not any more
}

// Title is how many rows there are.
func (p pager) Title() string { return view.Count(p.All, strings.TrimSuffix(p.What, "s")) }

func newPager(what string, page, rows, all int, address func(page int) string) pager {
	p := pager{What: what, Page: page, Pages: max(1, (all+rows-1)/rows), All: all}
	p.Beyond = page > p.Pages
	p.First, p.Last = min((page-1)*rows+1, all), min(page*rows, all)
	if page > 1 {
		p.Prev = address(min(page-1, p.Pages))
	}
	if page < p.Pages {
		p.Next = address(page + 1)
	}
	return p
}

type listView struct {
	frame
	Heads  []listHead
	Rows   []listRow
	Pager  pager
	Totals totals
	Found  []foundRow
	Missed int // so many more were found than are shown
}

// tab leads to the semaphores in a state.
type tab struct {
	Label, Address string
	N              int
	Chosen         bool
}

type listHead struct {
	Label, Address string
	Sorted         string // as aria-sort says it
}

// totals are what all semaphores come to, that the visitor sees.
type totals struct {
	watch.Totals
	Ordered bool // the list is in the order of the values that looks found
	Tabs    []tab

	Attention int // semaphores that need it
}

// Partial reports that the list is in that order, and that many semaphores have not
// been looked at yet.
func (t totals) Partial() bool { return t.Ordered && t.Looked*10 < t.Listed*9 } // some may be new

type listRow struct {
	watch.Summary
	Address     string
	Bar, Spark  template.HTML
	Wait        string
	State, Tone string
}

// foundRow is a client that a search found.
type foundRow struct {
	history.Caller
	caller
	Address string
	When    stamp
	How     string
	Revoke  string // address; empty: it holds nothing, or that is not the visitor's to do
}

// foundMost is how many clients a search shows.
const foundMost = 20

func (h *Handler) list(ctx context.Context, q listQuery, a visitor) (listView, error) {
	query := watch.Query{Prefixes: a.Prefixes, Order: q.sort, Skip: (q.page - 1) * h.options.Rows, N: h.options.Rows, Soon: true}
	if q.sort == "attention" {
		query.Order = ""
		query.Rank = func(s watch.Summary) float64 { _, rank := h.rank(s); return rank }
	}
	counts := make([]int, len(states))
	query.Match = h.match(q, counts)
	page, total, err := h.watcher.Summaries(ctx, query)
	if err != nil {
		return listView{}, err
	}
	v := listView{frame: h.frame("Semaphores", a)}
	v.Find = q.find
	v.Live = h.options.Interval.Milliseconds()
	for _, o := range orders {
		other := q
		other.sort, other.page = o.key, 1
		head := listHead{Label: o.label, Address: other.address(), Sorted: "none"}
		if o.key == q.sort {
			head.Sorted = map[bool]string{true: "ascending", false: "descending"}[o.key == "name"]
		}
		v.Heads = append(v.Heads, head)
	}
	v.Heads[0], v.Heads[1] = v.Heads[1], v.Heads[0] // the name heads its row
	v.Totals = totals{Totals: h.watcher.Totals(a.Prefixes), Ordered: q.sort != "name" || q.find+q.state != ""}
	for i, s := range states {
		other := q
		other.state, other.page = s.key, 1
		v.Totals.Tabs = append(v.Totals.Tabs, tab{s.label, other.address(), counts[i], s.key == q.state})
		if s.key == "attention" && q.find == "" {
			v.Totals.Attention = counts[i]
		}
	}
	for _, s := range page {
		if s.Limit == 0 && s.Err == nil {
			continue // gone since it was listed
		}
		v.Rows = append(v.Rows, h.listRow(s))
	}
	v.Pager = newPager("semaphores", q.page, h.options.Rows, total, func(page int) string {
		other := q
		other.page = page
		return other.address()
	})
	if q.find != "" {
		v.Found, v.Missed = h.found(q, a)
	}
	return v, nil
}

func (h *Handler) listRow(s watch.Summary) listRow {
	row := listRow{Summary: s, Address: semaphoreAddress(s.Name), Bar: bar(s.Used, s.Limit, s.Limit), Spark: h.spark(s.Name)}
	if s.Waiting > 0 {
		row.Wait = view.Brief(s.Oldest)
	}
	known, _ := h.known(s, 0)
	list, tone := h.troubles(s)
	if row.State, row.Tone = view.Head(s, known), tone; len(list) > 0 {
		row.State += ": " + strings.Join(list, ", ")
	}
	return row
}

// kindsOf are the kinds of history.Caller in words.
var kindsOf = map[string]string{
	"granted": "holds a permit", "queued": "waits", "released": "gave it back", "ended": "its lease may have ended",
	"left": "left the queue, no permit seen",
}

// found are the clients that a search found, in all semaphores: those that hold or wait come
// first, then those that have gone, the last first.
func (h *Handler) found(q listQuery, a visitor) (rows []foundRow, missed int) {
	var here, gone []history.Caller
	into := func(list *[]history.Caller) func(history.Caller) {
		return func(c history.Caller) {
			if rights.Sees(a.Who, c.Semaphore) && q.has(c) {
				*list = append(*list, c)
			}
		}
	}
	h.history.Here(into(&here))
	h.history.Gone(into(&gone))
	slices.SortFunc(here, func(a, b history.Caller) int {
		return cmp.Or(cmp.Compare(a.Semaphore, b.Semaphore), a.Time.Compare(b.Time), cmp.Compare(a.ID, b.ID))
	})
	slices.SortFunc(gone, func(a, b history.Caller) int { return b.Time.Compare(a.Time) })
	all := append(here, gone...)
	shown := all[:min(foundMost, len(all))]
	for i, c := range shown {
		row := foundRow{Caller: c, caller: h.caller(c.Client, c.ID), Address: semaphoreAddress(c.Semaphore), When: stamp{c.Time}, How: kindsOf[c.Kind]}
		if i < len(here) {
			row.Address = semaphoreAt(c.Semaphore, c.ID)
		}
		if c.Kind == "granted" && rights.May(a.Who, rights.Admin) {
			row.Revoke = actAddress("revoke", c.Semaphore, "permit", c.ID)
		}
		rows = append(rows, row)
	}
	return rows, len(all) - len(shown)
}

func (h *Handler) listPage(w http.ResponseWriter, r *http.Request, a visitor) {
	ctx, cancel := context.WithTimeout(r.Context(), lateTime)
	defer cancel()
	v, err := h.list(ctx, listQueryOf(r.URL.Query()), a)
	if err != nil {
		h.unreachable(w, r, a, err)
		return
	}
	v.Done = kinds[r.URL.Query().Get("done")].done
	h.render(w, http.StatusOK, "list", v)
}
