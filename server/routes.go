package server

import (
	"context"
	_ "embed"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"path"
	"slices"
	"strings"
	"sync"
	"time"

	"sema"
	"sema/access"
	"sema/internal/rights"
)

//go:embed openapi.json
var written string

// openAPI describes the routes below; a test compares them. The file says once what many answers have: guarded are those of all
// routes that need a right, body those of routes with a body; problem is the content of an error, later its header.
var openAPI = sync.OnceValue(func() []byte {
	const answer = `"%s": {"$ref": "#/components/responses/%s"}`
	return []byte(strings.NewReplacer(
		`"guarded": {}`, fmt.Sprintf(answer+", "+answer+", "+answer+", "+answer, "400", "Wrong", "401", "Unknown", "403", "Forbidden", "503", "Away"),
		`"body": {}`, fmt.Sprintf(answer+", "+answer+", "+answer, "408", "Slow", "413", "TooLarge", "415", "MediaType"),
		`"problem": {}`, `"application/problem+json": {"schema": {"$ref": "#/components/schemas/Problem"}}`,
		`"later": {}`, `"Retry-After": {"description": "seconds", "schema": {"type": "integer"}}`,
	).Replace(written))
})

// route is a method and path with its handler.
type route struct {
	method, path string
	right        string // None: no token is needed
	do           handler
}

type handler func(s *Server, w http.ResponseWriter, r *http.Request, who *access.Who) error

var routes = []route{
	{"GET", "/healthz", rights.None, (*Server).healthz},
	{"GET", "/readyz", rights.None, (*Server).readyz},
	{"GET", "/v1/openapi.json", rights.None, (*Server).describe},

	{"GET", "/v1/semaphores", rights.Read, (*Server).list},
	{"GET", "/v1/semaphores/{name}", rights.Read, (*Server).show},
	{"DELETE", "/v1/semaphores/{name}", rights.Admin, operation("remove", (*sema.Operator).Remove)},
	{"PUT", "/v1/semaphores/{name}/limit", rights.Admin, (*Server).setLimit},
	{"DELETE", "/v1/semaphores/{name}/limit", rights.Admin, operation("unset-limit", func(o *sema.Operator, ctx context.Context) error { return o.Unset(ctx) })},
	{"PUT", "/v1/semaphores/{name}/keys/{first}", rights.Admin, (*Server).setKey},
	{"DELETE", "/v1/semaphores/{name}/keys/{first}", rights.Admin, (*Server).unsetKey},
	{"PUT", "/v1/semaphores/{name}/keys/{first}/{second}", rights.Admin, (*Server).setKey},
	{"DELETE", "/v1/semaphores/{name}/keys/{first}/{second}", rights.Admin, (*Server).unsetKey},
	{"PUT", "/v1/semaphores/{name}/keys/{first}/{second}/{third}", rights.Admin, (*Server).setKey},
	{"DELETE", "/v1/semaphores/{name}/keys/{first}/{second}/{third}", rights.Admin, (*Server).unsetKey},
	{"POST", "/v1/semaphores/{name}/pause", rights.Admin, operation("pause", (*sema.Operator).Pause)},
	{"POST", "/v1/semaphores/{name}/unpause", rights.Admin, operation("unpause", (*sema.Operator).Unpause)},

	{"POST", "/v1/semaphores/{name}/permits", rights.Use, (*Server).acquire},
	{"PUT", "/v1/semaphores/{name}/permits/{id}", rights.Use, (*Server).acquire},
	{"POST", "/v1/semaphores/{name}/permits/{id}/renew", rights.Use, (*Server).renew},
	{"DELETE", "/v1/semaphores/{name}/permits/{id}", rights.Use, (*Server).release},
	{"POST", "/v1/semaphores/{name}/hold", rights.Use, (*Server).hold},

	{"POST", "/v1/semaphores/{name}/holders/{permit}/revoke", rights.Admin, operationOn("revoke", (*sema.Operator).Revoke)},
	{"DELETE", "/v1/semaphores/{name}/holders/{permit}", rights.Admin, operationOn("release", (*sema.Operator).Release)},

	{"GET", "/v1/find", rights.Read, (*Server).find},
	{"GET", "/v1/events", rights.Read, (*Server).events},

	{"POST", "/v1/engine/step", rights.Read, (*Server).step},
	{"GET", "/v1/engine/calls", rights.Read, (*Server).calls},
	{"GET", "/v1/engine/news", rights.Read, (*Server).news},
	{"GET", "/v1/engine/state", rights.Read, reading((*Server).look)},
	{"GET", "/v1/engine/reports", rights.Read, reading((*Server).reports)},
	{"GET", "/v1/engine/list", rights.Read, (*Server).engineList},
	{"DELETE", "/v1/engine/sessions/{client}", rights.Read, (*Server).endSession},
}

func (s *Server) routes() http.Handler {
	mux := http.NewServeMux()
	methods := map[string][]string{}
	for _, one := range routes {
		mux.HandleFunc(one.method+" "+one.path, s.counted(one.method+" "+one.path, s.guarded(one)))
		methods[one.path] = append(methods[one.path], one.method)
	}
	allowed := func(w http.ResponseWriter, r *http.Request) {
		known := strings.Join(methods[r.Pattern], ", ")
		w.Header().Set("Allow", known)
		s.fail(w, r, problem(http.StatusMethodNotAllowed, "method", "want one of the methods %s", known))
	}
	other := s.counted("other methods", allowed)
	for path, known := range methods {
		slices.Sort(known)
		mux.HandleFunc(path, other)
	}
	if h := s.options.Metrics; h != nil {
		mux.HandleFunc("GET /metrics", s.counted("GET /metrics", s.guarded(route{right: rights.Read, do: func(s *Server, w http.ResponseWriter, r *http.Request, who *access.Who) error {
			if len(who.Prefixes) > 0 {
				return problem(http.StatusForbidden, "forbidden", "the token %q is not for all names, but these figures are", who.Name)
			}
			h.ServeHTTP(w, r)
			return nil
		}})))
	}
	rest := route{right: rights.Read, do: func(*Server, http.ResponseWriter, *http.Request, *access.Who) error {
		return problem(http.StatusNotFound, "no-route", "there is nothing at this path: see /v1/openapi.json")
	}}
	if h := s.options.Dashboard; h != nil {
		mux.HandleFunc("/v1/", s.counted("/v1/", s.guarded(rest))) // the clients here are programs, which need no HTML page
		rest = route{do: func(s *Server, w http.ResponseWriter, r *http.Request, _ *access.Who) error {
			if s.tokens == nil {
				if err := s.ownSite(r); err != nil {
					return err
				}
			}
			h.ServeHTTP(w, rights.WithFailed(r, func(err error) { s.noteFailure(r.Context(), err) }))
			return nil
		}}
	}
	if s.path != "" {
		s.toSlash = s.counted("redirect", func(w http.ResponseWriter, r *http.Request) {
			to := url.URL{Path: s.path + "/", RawQuery: r.URL.RawQuery}
			http.Redirect(w, r, to.String(), http.StatusPermanentRedirect)
		})
	}
	mux.HandleFunc("/", s.counted("/", s.guarded(rest)))
	// A ServeMux redirects from keys//alice to keys/alice, which is another key. It takes %2F alone for the end of a path.
	unclean := s.counted("unclean path", s.guarded(route{right: rights.Read, do: func(*Server, http.ResponseWriter, *http.Request, *access.Who) error {
		return problem(http.StatusBadRequest, "argument", "the path has an empty name, or / alone as a name, or . or ..: want %%2E for such a dot")
	}}))
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if p := r.URL.EscapedPath(); strings.HasPrefix(p, "/v1/") && (path.Clean(p) != strings.TrimSuffix(p, "/") || strings.Contains(strings.ToUpper(p)+"/", "/%2F/")) {
			unclean(w, r)
			return
		}
		mux.ServeHTTP(w, r)
	})
}

// guarded adds to a route the check of rights, the deadline of the body, and the answer to
// an error.
func (s *Server) guarded(one route) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		who, err := s.admit(one, r)
		if c, ok := w.(*statusWriter); ok && who != nil {
			c.who = who.Name
		}
		if err == nil {
			err = one.do(s, w, r, who)
		}
		if err != nil {
			s.auditRefused(r, who, err)
			s.fail(w, r, err)
		}
	}
}

// admit returns the sender of a request. It fails if the sender lacks the route's right.
func (s *Server) admit(one route, r *http.Request) (*access.Who, error) {
	if one.right == rights.None {
		return &access.Who{}, nil
	}
	if s.closed.Load() {
		return nil, closing()
	}
	who, err := s.who(r)
	if err == nil && !rights.May(*who, one.right) {
		err = forbidden(who, one.right)
	}
	return who, err
}

func setBodyDeadline(w http.ResponseWriter, r *http.Request) {
	if r.ContentLength == 0 {
		return
	}
	c := http.NewResponseController(w)
	_ = c.SetReadDeadline(time.Now().Add(bodyTime)) // fails with a test's writer
	r.Body = &deadlineBody{body: r.Body, c: c}
}

// deadlineBody removes the deadline at the end of the body. After that a connection may be
// silent for as long as its request waits.
type deadlineBody struct {
	body io.ReadCloser
	c    *http.ResponseController
}

func (u *deadlineBody) Read(b []byte) (int, error) {
	n, err := u.body.Read(b)
	if err == io.EOF && u.c != nil {
		_ = u.c.SetReadDeadline(time.Time{})
		u.c = nil
	}
	return n, err
}

func (u *deadlineBody) Close() error { return u.body.Close() }

func (s *Server) describe(w http.ResponseWriter, _ *http.Request, _ *access.Who) error {
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(openAPI())
	return nil
}
