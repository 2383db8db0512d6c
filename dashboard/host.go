package dashboard

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"sema/access"
	"sema/engine"
	"sema/internal/rights"
	"sema/internal/view"
	"sema/watch"
)

// hostTime bounds the revocation of all permits of a host.
const hostTime = time.Minute

type hostView struct {
	frame
	Of      place
	Permits []hostPermit
	Pager   pager
	All     int // permits
	Waiting int
	Revoked int // of All: an operator wants them back already
	Ask     *confirmView
}

type hostPermit struct {
	engine.Holder
	caller
	Semaphore, Address string
	Held, Rest         string
}

// at is what a place holds, by looks that begin now at all semaphores that somebody
// holds. f is called with each permit, until it fails.
func (h *Handler) at(ctx context.Context, p place, a visitor, f func(name string, holder engine.Holder) error) (waiting int, err error) {
	all, _, err := h.watcher.Summaries(ctx, watch.Query{Prefixes: a.Prefixes})
	if err != nil {
		return 0, err
	}
	for _, s := range all {
		if s.Holders+s.Waiting == 0 && s.Err == nil {
			continue
		}
		st, err := h.watcher.State(ctx, s.Name)
		if err != nil {
			return waiting, err
		}
		for _, holder := range st.Holders {
			if h.placeOf(holder.Client) == p {
				if err := f(s.Name, holder); err != nil {
					return waiting, err
				}
			}
		}
		for _, waiter := range st.Waiters {
			if h.placeOf(waiter.Client) == p {
				waiting += 1 + waiter.Behind
			}
		}
	}
	return waiting, nil
}

func placeIn(v url.Values) (place, error) {
	p := place{v.Get("host"), v.Get("token")}
	name := cmp.Or(p.Token, p.Host)
	if name == "" || p.Token != "" && p.Host != "" {
		return p, &engine.ArgumentError{Package: "dashboard", What: "host", Value: p.Host, Want: "the name of a host, or of a token"}
	}
	return p, engine.ValidateText("host", name, engine.MaxName)
}

// hostPage is what a place holds, and asks whether all of it is to be revoked.
func (h *Handler) hostPage(w http.ResponseWriter, r *http.Request, a visitor) {
	p, err := placeIn(r.URL.Query())
	if err != nil {
		h.fail(w, r, a, http.StatusBadRequest, h.sentence(err))
		return
	}
	page, rows := pageOf(r.URL.Query(), "page"), h.options.Rows
	v := hostView{frame: h.frame(p.String(), a), Of: p}
	ctx, cancel := context.WithTimeout(r.Context(), hostTime)
	defer cancel()
	v.Waiting, err = h.at(ctx, p, a, func(name string, holder engine.Holder) error {
		if v.All++; holder.Revoked {
			v.Revoked++
		}
		if v.All > (page-1)*rows && v.All <= page*rows {
			v.Permits = append(v.Permits, hostPermit{holder, h.caller(holder.Client, holder.ID), name, semaphoreAt(name, holder.ID), view.Brief(holder.Age), view.Brief(holder.Left)})
		}
		return nil
	})
	if err != nil {
		h.unreachable(w, r, a, err)
		return
	}
	v.Pager = newPager("permits", page, rows, v.All, func(page int) string { return p.address() + "&page=" + strconv.Itoa(page) })
	if v.Admin && v.All > 0 {
		all := strconv.Itoa(v.All)
		v.Ask = &confirmView{Button: "Revoke all " + count(v.All, "permit"), Danger: true, Action: "host", Back: "./", Hidden: url.Values{"all": {all}, "host": {p.Host}, "token": {p.Token}},
			Fields: []field{{Name: "number", Label: "Type " + all + " to revoke them all", Type: "text", Pattern: all, Required: true, Title: all}},
			Note:   "If it died, its permits are free when their leases have ended. Revoke them if it may still run, or may come back: no lease is renewed any more, its programs are told to stop, and the limits hold all the time."}
	}
	if done, err := strconv.Atoi(r.URL.Query().Get("revoked")); err == nil && done >= 0 {
		v.Done = count(done, "permit") + " revoked. Each is free when its holder has stopped, or its lease has ended."
	}
	h.render(w, http.StatusOK, "host", v)
}

func (h *Handler) revokeHost(w http.ResponseWriter, r *http.Request, a visitor) {
	if !rights.May(a.Who, rights.Admin) {
		h.fail(w, r, a, http.StatusForbidden, "You may look, but not change anything.")
		return
	}
	p, err := placeIn(r.PostForm)
	if all := r.PostForm.Get("all"); err == nil && (all == "" || strings.TrimSpace(r.PostForm.Get("number")) != all) {
		err = &engine.ArgumentError{Package: "dashboard", What: "number", Value: cut(r.PostForm.Get("number"), 60), Want: cut(all, 60) + ", how many permits are revoked"}
	}
	if err != nil {
		h.fail(w, r, a, http.StatusBadRequest, h.sentence(err))
		return
	}
	// What was confirmed is done even if the browser is gone by now.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), hostTime)
	defer cancel()
	done := 0
	_, err = h.at(ctx, p, a, func(name string, holder engine.Holder) error {
		x := access.Record{What: "revoke", Name: name, Permit: holder.ID, Caller: holder.Client.Caller}
		_, err := h.perform(ctx, rights.By(x, a.Who, r), kinds[x.What])
		switch rights.ResultOf(err) {
		case "done":
			done++
		case "gone": // it is free already
		default:
			return err
		}
		return nil
	})
	if err != nil {
		h.fail(w, r, a, statusOf(err, http.StatusInternalServerError), fmt.Sprintf("%s revoked, and then: %s Others may still be held.", count(done, "permit"), h.sentence(err)))
		return
	}
	see(w, p.address()+"&revoked="+strconv.Itoa(done))
}
