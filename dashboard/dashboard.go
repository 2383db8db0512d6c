// Package dashboard shows semaphores in a browser, and lets operators change
// them. It is an http.Handler for any engine:
//
//	d, err := dashboard.New(engine, nil)
//	defer d.Close()
//	mux.Handle("/sema/", http.StripPrefix("/sema", d))
//
// Without options everybody that reaches the handler sees everything and
// changes nothing. Options.Login asks for a token; Options.Allow decides by the
// program's own means, such as its sessions or a proxy's header.
//
// Pages are plain HTML of this program: they load nothing from other hosts and
// need no build step. Only the live updates need JavaScript.
package dashboard

import (
	"cmp"
	"log/slog"
	"net/http"
	"strings"
	"time"

	"sema"
	"sema/access"
	"sema/engine"
	"sema/internal/history"
	"sema/internal/once"
	"sema/internal/protocol"
	"sema/internal/rights"
	"sema/watch"
)

// Options of a Handler. The zero value of each field is its default.
type Options struct {
	// Allow says what the sender of a request may do. With Login it is asked
	// about those who have not logged in. Default:
	// the right "read", or with Login none.
	Allow func(*http.Request) access.Who

	// Login says what the bearer of a token may do that a request shows; ok is false
	// if there is no such token. It is called for every request, and has to compare
	// in constant time. With it, the dashboard has a page to log in. The browser keeps the
	// token in a cookie that scripts cannot read and that other sites cannot
	// have sent (HttpOnly, SameSite=Strict; Secure if the
	// request came by TLS, to this process or to one of the Proxies of package server). Default: nobody logs in.
	Login func(r *http.Request, token string) (who access.Who, ok bool)

	// Unchecked reports whether Login has refused a token without checking it, because its sender has guessed too
	// often. Default: it never does.
	Unchecked func(r *http.Request, token string) bool

	// Secure marks the cookie as Secure though requests come without TLS: for
	// servers behind a proxy that has it.
	Secure bool

	// Origins decides which posts come from our own pages. Set one with
	// AddTrustedOrigin where a proxy changes the Host header. Default: posts from
	// the origin that the request was sent to.
	Origins *http.CrossOriginProtection

	// Audit is told of everything that operators do, once it is done or has
	// failed, and of posts that are refused. Each record as
	// JSON is a line of an audit log. Default: Log is told.
	Audit func(access.Record)

	// AuditFirst is told of each change before it is tried: an error refuses it.
	// Default: nobody is.
	AuditFirst func(access.Record) error

	// Watcher looks at the semaphores. Give it to share one; it stays the
	// caller's to close. Default: one of the Handler's own.
	Watcher *watch.Watcher

	// Title heads the pages. Default "sema".
	Title string

	// Engine is what sentences call the engine, such as Redis. Default "The store".
	Engine string

	// Rows is how many rows a list of semaphores, hosts or permits has, 1 … 500. Default 50. The lists on the page of
	// a semaphore have 20, or 100 if somebody wants that.
	Rows int

	// Interval is how often a script asks for an open page again, 1 ms … 24 h. Default 1 s.
	Interval time.Duration

	// Always makes the Watcher look at all semaphores all the time, once each of its
	// Options.Rounds, so that a page has the last hour as soon as somebody opens it. Default
	// false: a page has the time in which pages were open.
	Always bool

	// Log has what went wrong. Default slog.Default.
	Log *slog.Logger
}

// Handler is the dashboard. Create it with New and close it.
type Handler struct {
	engine  protocol.Engine
	options Options
	watcher *watch.Watcher
	history *history.History
	origins *http.CrossOriginProtection
	mux     *http.ServeMux
	close   once.Once
}

// New makes a dashboard over an engine, which stays the caller's to close,
// after the Handler. A nil options means the defaults. It does no I/O, so it
// fails only on values out of range, with an *engine.ArgumentError.
//
// It may be anywhere below a path that ends in a slash: its links are
// relative, and what it is given has the path's prefix stripped.
func New(e sema.Engine, o *Options) (*Handler, error) {
	if o == nil {
		o = &Options{}
	}
	options := *o
	options.Title = cmp.Or(o.Title, "sema")
	options.Engine = cmp.Or(o.Engine, "The store")
	options.Rows = cmp.Or(o.Rows, 50)
	options.Interval = cmp.Or(o.Interval, time.Second)
	if err := cmp.Or(
		protocol.Validate("dashboard", e),
		engine.ValidateRange("dashboard", "Options.Rows", options.Rows, 1, 500),
		engine.ValidateRange("dashboard", "Options.Interval", options.Interval, time.Millisecond, 24*time.Hour),
	); err != nil {
		return nil, err
	}
	h := &Handler{engine: e, options: options, watcher: o.Watcher, origins: o.Origins}
	if h.watcher == nil {
		w, err := watch.New(e, nil)
		if err != nil {
			return nil, err
		}
		h.watcher = w
	}
	h.history = history.New(h.watcher, history.Options{Always: options.Always})
	if h.origins == nil {
		h.origins = http.NewCrossOriginProtection()
	}
	if h.options.Log == nil {
		h.options.Log = slog.Default()
	}
	if h.options.Audit == nil {
		h.options.Audit = rights.NewLog(nil, h.options.Log).Add
	}
	h.mux = http.NewServeMux()
	h.mux.HandleFunc("GET /{$}", h.reading(h.listPage))
	h.mux.HandleFunc("GET /semaphore", h.reading(h.semaphorePage))
	h.mux.HandleFunc("GET /hosts", h.reading(h.hostsPage))
	h.mux.HandleFunc("GET /host", h.reading(h.hostPage))
	h.mux.HandleFunc("POST /host", h.posting(h.reading(h.revokeHost)))
	h.mux.HandleFunc("GET /act", h.reading(h.confirmPage))
	h.mux.HandleFunc("POST /act", h.posting(h.reading(h.act)))
	if h.options.Login != nil {
		h.mux.HandleFunc("GET /login", h.loginPage)
		h.mux.HandleFunc("POST /login", h.posting(h.login))
		h.mux.HandleFunc("POST /logout", h.posting(h.logout))
	}
	h.mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet && r.Method != http.MethodHead && r.Method != http.MethodPost {
			h.fail(w, r, visitor{}, http.StatusMethodNotAllowed, "Nothing is done that way here.")
			return
		}
		if strings.Contains(strings.TrimPrefix(r.URL.Path, "/"), "/") { // from here the links of a page lead nowhere
			http.Error(w, "There is no such page.", http.StatusNotFound)
			return
		}
		h.fail(w, r, visitor{}, http.StatusNotFound, "There is no such page.")
	})
	for _, a := range assets() {
		h.mux.HandleFunc("GET /"+a.name, a.serve)
	}
	return h, nil
}

// Close ends the looks at semaphores. Requests that follow say that the dashboard is about to end.
func (h *Handler) Close() {
	h.close.Do(func() {
		h.history.Close()
		if h.options.Watcher == nil { // it is our own
			h.watcher.Close()
		}
	})
}

// Acted shows an operator's act on the semaphore's page, such as one by way of the API of a
// server. What operators do on the pages is shown anyway.
func (h *Handler) Acted(r access.Record) { h.history.Act(r) }

// policy lets pages use what comes from here, and nothing else. Nothing is
// inline, nobody frames us.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; " +
	"form-action 'self'; base-uri 'none'; frame-ancestors 'none'"

// ServeHTTP implements http.Handler.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	for key, value := range map[string]string{
		"Content-Security-Policy":      policy,
		"X-Content-Type-Options":       "nosniff",
		"X-Frame-Options":              "DENY",
		"Referrer-Policy":              "same-origin",
		"Cross-Origin-Opener-Policy":   "same-origin",
		"Cross-Origin-Resource-Policy": "same-origin",
		"Cache-Control":                "no-store", // it is about now, and not for everybody
	} {
		w.Header().Set(key, value)
	}
	if r.URL.Path == "" { // as StripPrefix leaves it; relative links need the slash
		w.Header().Set("Location", lastSegment(r)+"/")
		w.WriteHeader(http.StatusSeeOther)
		return
	}
	h.mux.ServeHTTP(w, r)
}

// lastSegment is the end of the path that the browser asked for, which is what
// a relative link begins from.
func lastSegment(r *http.Request) string {
	path, _, _ := strings.Cut(r.RequestURI, "?")
	segment := path[strings.LastIndexByte(path, '/')+1:]
	if segment == "" {
		return "."
	}
	return "./" + segment
}
