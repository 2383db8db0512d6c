package dashboard

import (
	"context"
	"html/template"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"sema/engine"
	"sema/internal/history"
	"sema/internal/rights"
	"sema/internal/view"
	"sema/watch"
)

// fewRows is how many rows a list of a semaphore's page has, and manyRows how many it has if somebody wants more.
const fewRows, manyRows = 20, 100

// semaphoreQuery is what the address of a semaphore's page says.
type semaphoreQuery struct {
	name  string
	at    string          // a permit: the page has its row
	many  bool            // manyRows
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
	q := semaphoreQuery{name: v.Get("name"), at: v.Get("at"), many: v.Has("many")}
	for list, key := range lists {
		q.pages[list] = pageOf(v, key)
	}
	return q
}

// rows is how many rows a list has.
func (h *Handler) rows(q semaphoreQuery) int {
	if q.many {
		return manyRows
	}
	return min(fewRows, h.options.Rows)
}

// pager leads to the pages of one of the lists.
func (q semaphoreQuery) pager(list, rows, all int) pager {
	p := newPager(lists[list], q.pages[list], rows, all, func(page int) string {
		q.pages[list] = page
		return q.address()
	})
	if !q.many && all > rows {
		q.pages, q.many = [len(lists)]int{}, true
		p.Many = q.address() + "#" + lists[list]
	}
	return p
}

// address is the query's in text: the same for the same page.
func (q semaphoreQuery) address() string {
	v := url.Values{"name": {q.name}}
	for list, page := range q.pages {
		if page > 1 {
			v.Set(lists[list], strconv.Itoa(page))
		}
	}
	if q.many {
		v.Set("many", "1")
	}
	return "semaphore?" + v.Encode()
}

// semaphoreAddress leads to a semaphore.
func semaphoreAddress(name string) string { return semaphoreQuery{name: name}.address() }

// semaphoreAt leads to the row of a permit there.
func semaphoreAt(name, permit string) string {
	return semaphoreAddress(name) + "&" + url.Values{"at": {permit}}.Encode() + "#" + permit
}

type semaphoreView struct {
	frame
	Name         string
	Gone         bool // nobody uses it
	State        engine.State
	Say          view.Sentence
	Tone         string // a class: warn, bad, or none
	Bar          template.HTML
	LimitBy      string
	Adapting     string // how the limit is found
	Limit, Caps  string // addresses; empty: not the visitor's to do
	Actions      []link
	Charts       []chart
	Pools        []poolRow
	Keys         []keyRow
	KeysPager    pager
	Holders      []holderRow
	HoldersPager pager
	Waiters      []waiterRow
	WaitersPager pager
	Lately       []happening
}

type link struct{ Label, Address string }

// poolRow is a pool in one line.
type poolRow struct {
	engine.PoolState
	Bar        template.HTML
	By, Change string
	Out        bool
}

type holderRow struct {
	engine.Holder
	caller
	Held, Rest string
	Granted    stamp  // zero: unknown
	Revoke     string // addresses; empty: not the visitor's to do
	Release    string
}

type waiterRow struct {
	engine.Waiter
	caller
	Position int
	Since    string
	Why      string
}

func (h *Handler) semaphore(ctx context.Context, q semaphoreQuery, a visitor) (semaphoreView, error) {
	st, looked, err := h.watcher.Recent(ctx, q.name)
	if err != nil {
		return semaphoreView{}, err
	}
	since, admin, rows := max(0, time.Since(looked)), rights.May(a.Who, rights.Admin) && st.Limit > 0, h.rows(q)
	v := semaphoreView{frame: h.frame(q.name, a), Name: q.name, State: st, Gone: st.Limit == 0, Adapting: view.Adapts(st), Bar: bar(st.Used, st.Limit, st.Limit)}
	look, summary := view.LookAt(st), watch.Summarize(q.name, looked, st)
	known, glance := h.known(summary, since)
	troubles, tone := h.troubles(summary)
	if len(troubles) > 0 { // they say what is usual
		known.Usual = 0
	}
	keyed := look.Rows()
	v.Say, v.Tone = look.Say(summary, keyed, known), tone
	for _, text := range troubles {
		v.Say.More = append(v.Say.More, strings.ToUpper(text[:1])+text[1:]+".")
	}
	v.LimitBy = "the programs"
	if act := glance.Limit; st.Pinned {
		v.LimitBy = "an operator"
		if act != nil && act.Limit == st.Limit && act.Who != "" {
			v.LimitBy = act.Who + ", " + stamp{act.Time}.Minute() + " UTC"
		}
	}
	if admin {
		v.Limit, v.Caps, v.Actions = actAddress("limit", q.name), actAddress("limit", q.name, "of", "caps"), actions(q.name, st)
	}
	v.Charts, v.Lately = h.charts(q.name, time.Now()), h.happenings(q.name)
	for _, p := range st.Pools {
		row := poolRow{PoolState: p, Bar: cells(p.Used, p.Limit, p.Waiting > 0), By: look.HeldBy(view.Bound{Pool: p.Pool}, known.Who), Out: p.Waiting > 0 && p.Used >= p.Limit}
		if p.Per > 0 { // nobody holds what comes back with time
			if row.By = ""; p.Next > 0 {
				row.By = "the next in " + view.Brief(p.Next)
			}
		}
		if admin {
			row.Change = actAddress("limit", q.name, "pool", p.Pool)
		}
		v.Pools = append(v.Pools, row)
	}
	sorted := view.ByToken(st.Holders)
	if at := slices.IndexFunc(sorted, func(x engine.Holder) bool { return x.ID == q.at }); at >= 0 {
		q.pages[holders] = at/rows + 1
	}
	if at := slices.IndexFunc(st.Waiters, func(x engine.Waiter) bool { return x.ID == q.at }); at >= 0 {
		q.pages[waiters] = at/rows + 1
	}
	v.Live = h.options.Interval.Milliseconds()
	v.HoldersPager, v.WaitersPager = q.pager(holders, rows, len(sorted)), q.pager(waiters, rows, len(st.Waiters))
	tree := view.Tree(keyed, st.Caps)
	v.KeysPager = q.pager(keys, rows, len(tree))
	look.Explain(window(tree, q.pages[keys], rows))
	v.Keys = h.keys(q, tree, st.Limit, since, admin)
	for _, x := range window(sorted, q.pages[holders], rows) {
		row := holderRow{Holder: x, caller: h.caller(x.Client, x.ID), Held: "unknown", Rest: view.Brief(max(0, x.Left-since))}
		if x.Token != 0 {
			row.Held, row.Granted = view.Brief(x.Age+since), stamp{looked.Add(-x.Age)}
		}
		if admin {
			row.Revoke, row.Release = actAddress("revoke", q.name, "permit", x.ID), actAddress("release", q.name, "permit", x.ID)
		}
		v.Holders = append(v.Holders, row)
	}
	for i, x := range window(st.Waiters, q.pages[waiters], rows) {
		before := look.Before[(q.pages[waiters]-1)*rows+i]
		v.Waiters = append(v.Waiters, waiterRow{x, h.caller(x.Client, x.ID), before + 1, view.Brief(x.Waiting + since), look.Why(x)})
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
	if v.Gone && !live(r) {
		code = http.StatusNotFound
	}
	h.render(w, code, "semaphore", v)
}

// known is what the history adds to a look of so long ago.
func (h *Handler) known(s watch.Summary, since time.Duration) (view.Known, history.Glance) {
	g := h.history.Glance(s.Name)
	k := view.Known{Since: since, Full: ago(g.Full), Paused: ago(g.Paused), Who: h.who}
	if g.Pause != nil && g.Paused.Sub(g.Pause.Time) < time.Minute { // else it was another pause
		k.By, k.Paused = g.Pause.Who, ago(g.Pause.Time)
	}
	if g.Waits >= enoughWaits {
		k.Usual = g.Usual
	}
	return k, g
}

func ago(t time.Time) time.Duration {
	if t.IsZero() {
		return 0
	}
	return time.Since(t)
}
