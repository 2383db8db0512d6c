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
	"sema/watch"
)

// listOrder is a way to sort the list.
type listOrder struct{ key, label string }

// orders are the columns that a list can be sorted by, the usual one first. The keys of the others
// are values of watch.Query.Order.
var orders = []listOrder{
	{"attention", "Needs attention"},
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
	{"", "any state", nil},
	{"attention", "needs attention", func(h *Handler, s watch.Summary) bool { _, rank := h.troubles(s); return rank > 0 }},
	{"waiting", "somebody waits", func(_ *Handler, s watch.Summary) bool { return s.Waiting > 0 }},
	{"full", "nothing free", func(_ *Handler, s watch.Summary) bool { return s.Limit > 0 && s.Used >= s.Limit }},
	{"paused", "paused", func(_ *Handler, s watch.Summary) bool { return s.Paused }},
	{"idle", "not in use", func(_ *Handler, s watch.Summary) bool { return s.Limit > 0 && s.Used == 0 && s.Waiting == 0 }},
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

// match is what the query leaves of a list; nil: all of it.
func (h *Handler) match(q listQuery) func(watch.Summary) bool {
	var in func(*Handler, watch.Summary) bool
	for _, s := range states {
		if s.key == q.state {
			in = s.match
		}
	}
	if in == nil && q.find == "" {
		return nil
	}
	named := map[string]bool{}
	if q.find != "" {
		h.history.Here(func(c history.Caller) {
			if q.has(c) {
				named[c.Semaphore] = true
			}
		})
	}
	return func(s watch.Summary) bool {
		return (in == nil || in(h, s)) && (named[s.Name] || q.in(s.Name))
	}
}

// pager leads to the pages beside this one.
type pager struct {
	What             string
	Page, Pages      int
	First, Last, All int // rows
	Prev, Next       string
	Beyond           bool // there is no such page, or not any more
}

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
	Find, Sort string
	Limited    bool // the query leaves something out
	States     []option
	Heads      []listHead
	Rows       []listRow
	Pager      pager
	Totals     totals
	Found      []foundRow
}

type option struct {
	Key, Label string
	Chosen     bool
}

type listHead struct {
	Label, Address string
	Sorted         string // as aria-sort says it
}

// totals are what all semaphores come to, that the visitor sees.
type totals struct {
	watch.Totals
	Ordered bool // the list is in the order of the values that looks found
}

// Partial reports that the list is in that order, and that many semaphores have not
// been looked at yet.
func (t totals) Partial() bool { return t.Ordered && t.Looked*10 < t.Listed*9 } // some may be new

type listRow struct {
	watch.Summary
	Key      string
	Address  string
	Bar      template.HTML
	Spark    template.HTML
	Wait     string
	Troubles []string
}

// foundRow is a client that a search found.
type foundRow struct {
	history.Caller
	Address  string
	HostPage string
	When     stamp
	How      string
}

// foundMost is how many clients a search shows.
const foundMost = 20

func (h *Handler) list(ctx context.Context, q listQuery, a visitor) (listView, error) {
	query := watch.Query{Prefixes: a.Prefixes, Order: q.sort, Skip: (q.page - 1) * h.options.Rows, N: h.options.Rows, Soon: true, Match: h.match(q)}
	if q.sort == "attention" {
		query.Order = ""
		query.Rank = func(s watch.Summary) float64 { _, rank := h.troubles(s); return rank }
	}
	page, total, err := h.watcher.Summaries(ctx, query)
	if err != nil {
		return listView{}, err
	}
	v := listView{frame: h.frame("Semaphores", a), Find: q.find, Sort: q.sort}
	v.Live = "live?of=list&" + q.text()
	v.Limited = q.find+q.state != ""
	for _, s := range states {
		v.States = append(v.States, option{s.key, s.label, s.key == q.state})
	}
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
	v.Totals = totals{h.watcher.Totals(a.Prefixes), q.sort != "name" || v.Limited}
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
		v.Found = h.found(q, a)
	}
	return v, nil
}

func (h *Handler) listRow(s watch.Summary) listRow {
	row := listRow{Summary: s, Key: s.Name, Address: semaphoreAddress(s.Name)}
	row.Bar = bar(s.Used, s.Limit)
	row.Spark = h.spark(s.Name)
	row.Wait = "–"
	if s.Waiting > 0 {
		row.Wait = brief(s.Oldest)
	}
	row.Troubles, _ = h.troubles(s)
	return row
}

// kindsOf are the kinds of history.Caller in words.
var kindsOf = map[string]string{
	"granted": "holds a permit", "queued": "waits", "released": "gave it back", "ended": "its lease may have ended",
	"left": "left the queue, no permit seen",
}

// found are the clients that a search found, in all semaphores: those that hold or wait come
// first, then those that have gone, the last first.
func (h *Handler) found(q listQuery, a visitor) []foundRow {
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
	var rows []foundRow
	for _, c := range all[:min(foundMost, len(all))] {
		rows = append(rows, foundRow{c, semaphoreAddress(c.Semaphore), hostAddress(c.Client.Host), stamp{c.Time}, kindsOf[c.Kind]})
	}
	return rows
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

// pieces are the parts of the page that change.
func (v listView) pieces() pieces {
	p := pieces{}
	p.part("pager", "pager", v.Pager)
	p.part("notice", "notice", v.Notice)
	p.part("totals", "totals", v.Totals)
	p.part("found", "found", v)
	for _, row := range v.Rows {
		p.row("rows", row.Key, "list-row", row)
	}
	return p.with("rows")
}
