package dashboard

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"sema/access"
	"sema/engine"
	"sema/internal/rights"
	"sema/watch"
)

// hostTime bounds the revocation of all permits of a host.
const hostTime = time.Minute

func hostAddress(host string) string { return "host?" + url.Values{"host": {host}}.Encode() }

type hostView struct {
	frame
	Host    string
	Permits []hostPermit
	All     int // permits
	Waiting int
	Revoked int // of All: an operator wants them back already
}

type hostPermit struct {
	engine.Holder
	Semaphore, Address string
	Held, Rest         string
}

// onHost is what a host holds, by looks that begin now at all semaphores that somebody
// holds. f is called with each permit, until it fails.
func (h *Handler) onHost(ctx context.Context, host string, a visitor, f func(name string, holder engine.Holder) error) (waiting int, err error) {
	all, _, err := h.watcher.Summaries(ctx, watch.Query{Prefixes: a.Prefixes})
	if err != nil {
		return 0, err
	}
	for _, s := range all {
		if s.Holders+s.Waiting == 0 && s.Err == nil {
			continue
		}
		name := s.Name
		st, err := h.watcher.State(ctx, name)
		if err != nil {
			return waiting, err
		}
		for _, holder := range st.Holders {
			if holder.Client.Host == host {
				if err := f(name, holder); err != nil {
					return waiting, err
				}
			}
		}
		for _, waiter := range st.Waiters {
			if waiter.Client.Host == host {
				waiting += 1 + waiter.Behind
			}
		}
	}
	return waiting, nil
}

func hostOf(v url.Values) (string, error) {
	host := v.Get("host")
	if host == "" {
		return "", &engine.ArgumentError{Package: "dashboard", What: "host", Value: host, Want: "the name of a host"}
	}
	return host, engine.ValidateText("host", host, engine.MaxName)
}

// hostPage is what a host holds, and asks whether all of it is to be revoked.
func (h *Handler) hostPage(w http.ResponseWriter, r *http.Request, a visitor) {
	host, err := hostOf(r.URL.Query())
	if err != nil {
		h.fail(w, r, a, http.StatusBadRequest, h.sentence(err))
		return
	}
	v := hostView{frame: h.frame(host, a), Host: host}
	ctx, cancel := context.WithTimeout(r.Context(), hostTime)
	defer cancel()
	v.Waiting, err = h.onHost(ctx, host, a, func(name string, holder engine.Holder) error {
		v.All++
		if holder.Revoked {
			v.Revoked++
		}
		if len(v.Permits) < h.options.Rows {
			v.Permits = append(v.Permits, hostPermit{holder, name, semaphoreAddress(name), brief(holder.Age), brief(holder.Left)})
		}
		return nil
	})
	if err != nil {
		h.unreachable(w, r, a, err)
		return
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
	host, err := hostOf(r.PostForm)
	if err != nil {
		h.fail(w, r, a, http.StatusBadRequest, h.sentence(err))
		return
	}
	// What was confirmed is done even if the browser is gone by now.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), hostTime)
	defer cancel()
	done := 0
	_, err = h.onHost(ctx, host, a, func(name string, holder engine.Holder) error {
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
	see(w, hostAddress(host)+"&revoked="+strconv.Itoa(done))
}
