package dashboard

import (
	"cmp"
	"context"
	"net/http"
	"slices"
	"strconv"

	"sema/internal/history"
	"sema/internal/rights"
	"sema/internal/view"
	"sema/watch"
)

type hostsView struct {
	frame
	Hosts []hostRow
	Pager pager
}

// hostRow is a host in one line.
type hostRow struct {
	Where, Address, List string
	Trouble              string
	Permits, Waiting     int // tickets, without those behind them
	Programs             int
	Semaphores           int
	dying                int
}

// hosts are the places of those that hold or wait, those with leases about to end first.
func (h *Handler) hosts(a visitor) []hostRow {
	type found struct {
		hostRow
		programs   map[int]bool
		semaphores map[string]bool
	}
	all := map[place]*found{}
	h.history.Here(func(c history.Caller) {
		if !rights.Sees(a.Who, c.Semaphore) {
			return
		}
		p := h.placeOf(c.Client)
		f := all[p]
		if f == nil {
			f = &found{programs: map[int]bool{}, semaphores: map[string]bool{}}
			all[p] = f
		}
		f.programs[c.Client.PID], f.semaphores[c.Semaphore] = true, true
		switch {
		case c.Kind == "queued":
			f.Waiting++
		case c.Dying:
			f.dying++
			fallthrough
		default:
			f.Permits++
		}
	})
	var rows []hostRow
	for p, f := range all {
		row := f.hostRow
		row.Programs, row.Semaphores = len(f.programs), len(f.semaphores)
		row.Where, row.Address, row.List = p.String(), p.address(), listQuery{find: cmp.Or(p.Token, p.Host), sort: orders[0].key}.address()
		if row.dying > 0 {
			row.Trouble = view.Count(row.dying, "lease") + " about to end"
		}
		rows = append(rows, row)
	}
	slices.SortFunc(rows, func(a, b hostRow) int {
		return cmp.Or(cmp.Compare(b.dying, a.dying), cmp.Compare(b.Permits, a.Permits), cmp.Compare(a.Where, b.Where))
	})
	return rows
}

func (h *Handler) hostsPage(w http.ResponseWriter, r *http.Request, a visitor) {
	ctx, cancel := context.WithTimeout(r.Context(), lateTime)
	defer cancel()
	if _, _, err := h.watcher.Summaries(ctx, watch.Query{Prefixes: a.Prefixes, N: 1, Soon: true}); err != nil { // rounds go on
		h.unreachable(w, r, a, err)
		return
	}
	all, page := h.hosts(a), pageOf(r.URL.Query(), "page")
	v := hostsView{frame: h.frame("Hosts", a), Hosts: window(all, page, h.options.Rows)}
	v.Pager = newPager("hosts", page, h.options.Rows, len(all), func(page int) string { return "hosts?page=" + strconv.Itoa(page) })
	h.render(w, http.StatusOK, "hosts", v)
}
