package dashboard

import (
	"bytes"
	"embed"
	"html/template"
	"net/http"
	"net/url"
	"sync"
	"time"

	"sema/internal/rights"
	"sema/internal/view"
)

//go:embed pages
var sources embed.FS

// pages are read when the first one is wanted: a program that has a dashboard in it, and shows none, starts sooner.
var pages = sync.OnceValue(func() *template.Template {
	return template.Must(template.New("").Funcs(template.FuncMap{"title": view.Title, "keyed": view.Keyed, "number": view.Number, "brief": brief}).ParseFS(sources, "pages/*.html"))
})

// frame is what all pages have.
type frame struct {
	Site, Page string
	Find       string // what was looked for
	Who        string
	Admin      bool
	Reads      bool
	Login      bool       // somebody who sees this without a token may have one
	Logout     bool       // there is a login to end
	Live       int64      // a script asks for the page again after so many milliseconds; 0: nothing changes
	Done       string     // what has just been done
	Undo       url.Values // the form that undoes it; empty: nothing does
}

func (h *Handler) frame(page string, a visitor) frame {
	return frame{
		Site: h.options.Title, Page: page, Who: a.Name, Admin: rights.May(a.Who, rights.Admin), Reads: rights.May(a.Who, rights.Read),
		Login: h.options.Login != nil && !a.loggedIn && rights.May(a.Who, rights.Read), Logout: a.loggedIn && rights.May(a.Who, rights.Read),
	}
}

// render answers with a page. It is made whole before any of it is sent.
func (h *Handler) render(w http.ResponseWriter, code int, page string, v any) {
	var b bytes.Buffer
	if err := pages().ExecuteTemplate(&b, page, v); err != nil {
		h.options.Log.Error("sema: a page of the dashboard cannot be made", "page", page, "error", err)
		http.Error(w, "this page cannot be shown", http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(code)
	_, _ = w.Write(b.Bytes()) // a browser that has gone
}

type failView struct {
	frame
	Heading, Text string
}

// live reports whether a script asks, for a page that it keeps up to date. It reads the page, whatever the status, and
// browsers write others in the console.
func live(r *http.Request) bool { return r.Header.Get("Sema-Live") != "" }

// fail answers with a page that says why not.
func (h *Handler) fail(w http.ResponseWriter, r *http.Request, a visitor, code int, text string) {
	heading := http.StatusText(code)
	if live(r) {
		code = http.StatusOK
	}
	h.render(w, code, "fail", failView{frame: h.frame(heading, a), Heading: heading, Text: text})
}

// lateTime is how long a page waits for the engine.
const lateTime = 3 * time.Second

// unreachable answers with a page that tries again by itself.
func (h *Handler) unreachable(w http.ResponseWriter, r *http.Request, a visitor, err error) {
	if r.Context().Err() != nil {
		return // nobody is there to read it
	}
	w.Header().Set("Retry-After", "5")
	w.Header().Set("Refresh", "5")
	text := h.sentence(err)
	if reached := h.watcher.Reached(); !reached.IsZero() {
		text += " Figures are of " + stamp{reached}.Clock() + " UTC."
	}
	h.failed(w, r, a, err, http.StatusServiceUnavailable, text+" This page tries again by itself.")
}

// failed answers with a page that says an error, by default with a status. The log has errors of the engine: the server's, if
// there is one, has its way with outages.
func (h *Handler) failed(w http.ResponseWriter, r *http.Request, a visitor, err error, otherwise int, text string) {
	code := statusOf(err, otherwise)
	if code == http.StatusServiceUnavailable && !rights.Failed(r, err) && !live(r) { // one line a second would say no more
		h.options.Log.Warn("sema: the dashboard cannot reach the engine", "error", err)
	}
	h.fail(w, r, a, code, text)
}
