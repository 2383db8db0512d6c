package dashboard

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"sema"
	"sema/access"
	"sema/engine"
	"sema/internal/rights"
	"sema/internal/view"
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

// at is what a place holds, by looks that begin now at all semaphores that the visitor may see, and how many of its callers wait.
func (h *Handler) at(ctx context.Context, p place, a visitor) (held []hostPermit, waiting int, err error) {
	missed, err := h.watcher.Each(ctx, a.Prefixes, func(name string, st engine.State) {
		for _, x := range st.Holders {
			if h.placeOf(x.Client) == p {
				held = append(held, hostPermit{x, h.caller(x.Client, x.ID), name, semaphoreAt(name, x.ID), view.Brief(x.Age), view.Brief(x.Left)})
			}
		}
		for _, waiter := range st.Waiters {
			if h.placeOf(waiter.Client) == p {
				waiting += 1 + waiter.Behind
			}
		}
	})
	if err == nil && missed > 0 {
		err = fmt.Errorf("%s cannot be read: %w", view.Count(missed, "semaphore"), sema.ErrEngine)
	}
	slices.SortFunc(held, func(a, b hostPermit) int {
		return cmp.Or(cmp.Compare(a.Semaphore, b.Semaphore), cmp.Compare(a.Token, b.Token))
	})
	return held, waiting, err
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
	held, waiting, err := h.at(ctx, p, a)
	if err != nil {
		h.unreachable(w, r, a, err)
		return
	}
	v.All, v.Waiting, v.Permits = len(held), waiting, window(held, page, rows)
	for _, x := range held {
		if x.Revoked {
			v.Revoked++
		}
	}
	v.Pager = newPager("permits", page, rows, v.All, func(page int) string { return p.address() + "&page=" + strconv.Itoa(page) })
	if v.Admin && v.All > 0 {
		all := strconv.Itoa(v.All)
		v.Ask = &confirmView{Button: "Revoke all " + view.Count(v.All, "permit"), Danger: true, Action: "host", Back: "./", Hidden: url.Values{"all": {all}, "host": {p.Host}, "token": {p.Token}},
			Fields: []field{{Name: "number", Label: "Type " + all + " to revoke them all", Type: "text", Pattern: all, Required: true, Title: all}},
			Note:   "If it died, its permits are free when their leases have ended. Revoke them if it may still run, or may come back: no lease is renewed any more, its programs are told to stop, and the limits hold all the time."}
	}
	if done, err := strconv.Atoi(r.URL.Query().Get("revoked")); err == nil && done >= 0 {
		v.Done = view.Count(done, "permit") + " revoked. Each is free when its holder has stopped, or its lease has ended."
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
	held, _, err := h.at(ctx, p, a)
	done := 0
	for _, permit := range held {
		if err != nil {
			break
		}
		x := access.Record{What: "revoke", Name: permit.Semaphore, Permit: permit.ID}
		_, err = h.perform(ctx, rights.By(x, a.Who, r), kinds[x.What])
		switch rights.ResultOf(err) {
		case "done":
			done++
		case "gone": // it is free already
			err = nil
		}
	}
	if err != nil {
		h.failed(w, r, a, err, http.StatusInternalServerError, fmt.Sprintf("%s revoked, and then: %s Others may still be held.", view.Count(done, "permit"), h.sentence(err)))
		return
	}
	see(w, p.address()+"&revoked="+strconv.Itoa(done))
}
