package dashboard

import (
	"context"
	"html/template"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"sema/engine"
	"sema/internal/rights"
	"sema/internal/view"
	"sema/watch"
)

// semaphoreQuery is what the address of a semaphore's page says.
type semaphoreQuery struct {
	name  string
	pages [len(lists)]int // of the lists; 0 is 1
}

// lists are the lists of a semaphore's page.
var lists = [...]string{holders: "holders", waiters: "waiters", keys: "keys"}

const (
	holders = iota
	waiters
	keys
)

func semaphoreQueryOf(v url.Values) semaphoreQuery {
	q := semaphoreQuery{name: v.Get("name")}
	for list, key := range lists {
		q.pages[list] = pageOf(v, key)
	}
	return q
}

// pager leads to the pages of one of the lists.
func (q semaphoreQuery) pager(list, rows, all int) pager {
	return newPager(lists[list], q.pages[list], rows, all, func(page int) string {
		q.pages[list] = page
		return q.address()
	})
}

// address is the query's in text: the same for the same page.
func (q semaphoreQuery) address() string {
	v := url.Values{"name": {q.name}}
	for list, page := range q.pages {
		if page > 1 {
			v.Set(lists[list], strconv.Itoa(page))
		}
	}
	return "semaphore?" + v.Encode()
}

// semaphoreAddress leads to a semaphore.
func semaphoreAddress(name string) string { return semaphoreQuery{name: name}.address() }

type semaphoreView struct {
	frame
	Name         string
	Gone         bool // nobody uses it
	State        engine.State
	Summary      watch.Summary
	Bar, Spark   template.HTML
	Wait         string
	Keys         []keyRow
	KeysPager    pager
	Holders      []holderRow
	HoldersPager pager
	Waiters      []waiterRow
	WaitersPager pager
	Actions      []link
	Troubles     []string
	Hour         hourView
	Adapting     string // how the limit is found
}

type link struct{ Label, Address, Class string }

type holderRow struct {
	engine.Holder
	Number     int
	Held, Rest string
	HostPage   string
	Revoke     string // addresses; empty: not the visitor's to do
	Release    string
}

type waiterRow struct {
	engine.Waiter
	Position int
	HostPage string
	Since    string
	Why      string
	Brief    string // Why, with a brief key
}

func (h *Handler) semaphore(ctx context.Context, q semaphoreQuery, a visitor) (semaphoreView, error) {
	st, looked, err := h.watcher.Recent(ctx, q.name)
	if err != nil {
		return semaphoreView{}, err
	}
	since := max(0, time.Since(looked))
	v := semaphoreView{frame: h.frame(q.name, a), Name: q.name, State: st, Gone: st.Limit == 0, Adapting: view.Adapts(st)}
	v.Live = "live?of=semaphore&" + q.address()[len("semaphore?"):]
	v.Summary = watch.Summarize(q.name, looked, st)
	v.Bar, v.Spark = bar(st.Used, st.Limit), h.spark(q.name)
	v.Troubles, _ = h.troubles(v.Summary)
	v.Hour = h.hour(q.name)
	v.Wait = "–"
	if v.Summary.Waiting > 0 {
		v.Wait = brief(v.Summary.Oldest + since)
	}
	rows := h.options.Rows
	v.HoldersPager = q.pager(holders, rows, len(st.Holders))
	v.WaitersPager = q.pager(waiters, rows, len(st.Waiters))
	look := view.LookAt(st)
	tree := view.Tree(look.Rows(), st.Caps)
	v.KeysPager = q.pager(keys, h.keyRows(), len(tree))
	v.Keys = h.keys(q, tree, since, a)
	for i, holder := range window(view.ByToken(st.Holders), q.pages[holders], rows) {
		row := holderRow{Holder: holder, Number: (q.pages[holders]-1)*rows + i + 1, Held: "unknown", Rest: brief(max(0, holder.Left-since)), HostPage: hostAddress(holder.Client.Host)}
		if holder.Token != 0 {
			row.Held = brief(holder.Age + since)
		}
		if rights.May(a.Who, rights.Admin) {
			row.Revoke, row.Release = actAddress("revoke", q.name, "permit", holder.ID), actAddress("release", q.name, "permit", holder.ID)
		}
		v.Holders = append(v.Holders, row)
	}
	for i, waiter := range window(st.Waiters, q.pages[waiters], rows) {
		before := look.Before[(q.pages[waiters]-1)*rows+i]
		row := waiterRow{Waiter: waiter, Position: before + 1, HostPage: hostAddress(waiter.Client.Host), Since: brief(waiter.Waiting + since)}
		row.Why = look.Why(waiter, before)
		row.Brief = briefWhy(row.Why, waiter.Key)
		v.Waiters = append(v.Waiters, row)
	}
	if rights.May(a.Who, rights.Admin) && !v.Gone {
		v.Actions = actions(q.name, st)
	}
	return v, nil
}

func window[T any](list []T, page, rows int) []T {
	from := min((page-1)*rows, len(list))
	return list[from:min(from+rows, len(list))]
}

func (h *Handler) semaphorePage(w http.ResponseWriter, r *http.Request, a visitor) {
	q := semaphoreQueryOf(r.URL.Query())
	if engine.ValidateName(q.name) != nil || !rights.Sees(a.Who, q.name) {
		h.fail(w, r, a, http.StatusNotFound, "There is no such semaphore.")
		return
	}
	v, err := h.semaphore(r.Context(), q, a)
	if err != nil {
		h.unreachable(w, r, a, err)
		return
	}
	v.Done, v.Undo = h.undoOffered(r, q.name, r.URL.Query().Get("done"), a)
	code := http.StatusOK
	if v.Gone {
		code = http.StatusNotFound
	}
	h.render(w, code, "semaphore", v)
}

// pieces are the parts of the page that change.
func (v semaphoreView) pieces() pieces {
	p := pieces{}
	p.part("notice", "notice", v.Notice)
	p.part("facts", "facts", v)
	p.part("actions", "actions", v.Actions)
	p.part("charts", "charts", v.Hour)
	p.part("lately", "lately", v.Hour.Lately)
	p.part("keys-pager", "pager", v.KeysPager)
	for _, row := range v.Keys {
		p.row("keys", "="+row.Key.Key.String(), "key-row", row) // a key may be empty
	}
	p.part("holders-pager", "pager", v.HoldersPager)
	p.part("waiters-pager", "pager", v.WaitersPager)
	for _, row := range v.Holders {
		p.row("holders", row.ID, "holder-row", row)
	}
	for _, row := range v.Waiters {
		p.row("waiters", row.ID, "waiter-row", row)
	}
	return p.with("keys", "holders", "waiters")
}
