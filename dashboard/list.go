package dashboard

import (
	"context"
	"fmt"
	"html/template"
	"net/http"
	"net/url"
	"slices"
	"strconv"

	"sema/engine"
	"sema/watch"
)

// orders are the columns that a list can be sorted by.
var orders = []struct {
	key, label string
	order      watch.Order
}{
	{"name", "Semaphore", watch.ByName},
	{"use", "In use", watch.ByUse},
	{"waiting", "Waiting", watch.ByWaiting},
	{"oldest", "Oldest wait", watch.ByOldest},
}

// listQuery is what the address of a list says.
type listQuery struct {
	filter string
	sort   string
	page   int
}

func listQueryOf(v url.Values) listQuery {
	q := listQuery{filter: v.Get("q"), sort: "name", page: pageOf(v, "page")}
	if engine.ValidateText("filter", q.filter, engine.MaxName) != nil {
		q.filter = ""
	}
	for _, o := range orders {
		if v.Get("sort") == o.key {
			q.sort = o.key
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

// address is the query's in text: the same for the same list.
func (q listQuery) address() string {
	v := url.Values{}
	if q.filter != "" {
		v.Set("q", q.filter)
	}
	if q.sort != "name" {
		v.Set("sort", q.sort)
	}
	if q.page > 1 {
		v.Set("page", strconv.Itoa(q.page))
	}
	return "./" + question(v)
}

func question(v url.Values) string {
	if len(v) == 0 {
		return ""
	}
	return "?" + v.Encode()
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
	Filter, Sort string
	Heads        []listHead
	Rows         []listRow
	Pager        pager
}

type listHead struct {
	Label, Address string
	Sorted         string // as aria-sort says it
}

type listRow struct {
	watch.Summary
	Key     string
	Address string
	Bar     template.HTML
	Spark   template.HTML
	Wait    string
	Problem string
}

func (h *Handler) list(ctx context.Context, q listQuery, a visitor) (listView, error) {
	i := slices.IndexFunc(orders, func(o struct {
		key, label string
		order      watch.Order
	}) bool {
		return o.key == q.sort
	})
	page, total, err := h.watcher.Summaries(ctx, watch.Query{
		Filter: q.filter, Prefixes: a.Prefixes, Order: orders[i].order,
		Skip: (q.page - 1) * h.options.Rows, N: h.options.Rows, Rounds: true,
	})
	if err != nil {
		return listView{}, err
	}
	v := listView{frame: h.frame("Semaphores", a), Filter: q.filter, Sort: q.sort}
	v.Live = "live?of=list&" + q.address()[len("./")+min(1, len(q.address())-len("./")):]
	for _, o := range orders {
		other := q
		other.sort, other.page = o.key, 1
		head := listHead{Label: o.label, Address: other.address(), Sorted: "none"}
		if o.key == q.sort {
			head.Sorted = map[bool]string{true: "ascending", false: "descending"}[o.key == "name"]
		}
		v.Heads = append(v.Heads, head)
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
	return v, nil
}

func (h *Handler) listRow(s watch.Summary) listRow {
	row := listRow{Summary: s, Key: s.Name, Address: semaphoreAddress(s.Name, 1, 1)}
	row.Bar = bar(s.Used, s.Limit)
	row.Spark = h.spark(s.Name)
	row.Wait = "–"
	if s.Waiting > 0 {
		row.Wait = brief(s.Oldest)
	}
	if s.Err != nil {
		row.Problem = fmt.Sprint(s.Err)
	}
	return row
}

func (h *Handler) listPage(w http.ResponseWriter, r *http.Request, a visitor) {
	v, err := h.list(r.Context(), listQueryOf(r.URL.Query()), a)
	if err != nil {
		h.unreachable(w, r, a, err)
		return
	}
	v.Done = doneText(r.URL.Query().Get("done"))
	h.render(w, http.StatusOK, "list", v)
}

// pieces are the parts of the page that change.
func (v listView) pieces() pieces {
	p := pieces{}
	p.part("pager", "pager", v.Pager)
	p.part("notice", "notice", v.Notice)
	for _, row := range v.Rows {
		p.row("rows", row.Key, "list-row", row)
	}
	return p.with("rows")
}
