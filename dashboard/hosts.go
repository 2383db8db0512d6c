package dashboard

import (
	"cmp"
	"context"
	"net/http"
	"slices"

	"sema/internal/history"
	"sema/internal/rights"
	"sema/watch"
)

type hostsView struct {
	frame
	Hosts []hostRow
	More  int
}

// hostRow is a host in one line.
type hostRow struct {
	Host, Address, List string
	Trouble             string
	Permits, Waiting    int // tickets, without those behind them
	Programs            int
	Semaphores          int
	dying               int
}

// hosts are those that hold or wait, those with leases about to end first.
func (h *Handler) hosts(a visitor) []hostRow {
	type found struct {
		hostRow
		programs   map[int]bool
		semaphores map[string]bool
	}
	all := map[string]*found{}
	h.history.Here(func(c history.Caller) {
		if !rights.Sees(a.Who, c.Semaphore) {
			return
		}
		f := all[c.Client.Host]
		if f == nil {
			f = &found{hostRow: hostRow{Host: c.Client.Host}, programs: map[int]bool{}, semaphores: map[string]bool{}}
			all[c.Client.Host] = f
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
	for host, f := range all {
		row := f.hostRow
		row.Programs, row.Semaphores = len(f.programs), len(f.semaphores)
		row.Address, row.List = hostAddress(host), listQuery{find: host, sort: orders[0].key}.address()
		if row.dying > 0 {
			row.Trouble = count(row.dying, "lease") + " about to end"
		}
		rows = append(rows, row)
	}
	slices.SortFunc(rows, func(a, b hostRow) int {
		return cmp.Or(cmp.Compare(b.dying, a.dying), cmp.Compare(b.Permits, a.Permits), cmp.Compare(a.Host, b.Host))
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
	v := hostsView{frame: h.frame("Hosts", a), Hosts: h.hosts(a)}
	if most := h.options.Rows; len(v.Hosts) > most {
		v.More, v.Hosts = len(v.Hosts)-most, v.Hosts[:most]
	}
	h.render(w, http.StatusOK, "hosts", v)
}
