package dashboard_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strings"
	"testing"

	"sema"
	"sema/access"
	"sema/dashboard"
	"sema/engine"
	"sema/internal/fixture/expect"
)

var hiddenField = regexp.MustCompile(`<input type="hidden" name="([^"]*)" value="([^"]*)">`)

// changed posts a change, and returns what the page that follows says of it, and the form
// that undoes it.
func (s *site) changed(f url.Values) (says string, undo url.Values) {
	s.t.Helper()
	w := s.post(303, "/act", f)
	r := httptest.NewRequest(http.MethodGet, "/"+w.Header().Get("Location"), nil)
	for _, c := range w.Result().Cookies() {
		if !c.HttpOnly || c.SameSite != http.SameSiteStrictMode {
			s.t.Errorf("a cookie for all: %v", c)
		}
		if c.MaxAge > 0 {
			r.AddCookie(c)
		}
	}
	_, page, _ := strings.Cut(s.do(200, r).Body.String(), `<span role="status">`)
	says, page, _ = strings.Cut(page, "</span>")
	form, _, ok := strings.Cut(page, ">Undo</button>")
	if !ok || !strings.HasPrefix(form, `<form method="post" action="act">`) {
		return says, nil
	}
	undo = url.Values{}
	for _, field := range hiddenField.FindAllStringSubmatch(form, -1) {
		undo.Set(field[1], field[2])
	}
	return says, undo
}

// The page after a change says the old and the new value, and its form restores the old one.
func TestChangesAreUndone(t *testing.T) {
	var audit []string
	s := open(t, dashboard.Options{Allow: admin, Audit: func(a access.Record) { audit = append(audit, a.What+" "+a.Who+" "+a.Result) }})
	sem := s.semaphore("x", 12, &sema.Options{Caps: sema.Caps{3}, Pools: "gpu=4"})
	hold(t, sem, "acme")
	state := func() (st engine.State) {
		t.Helper()
		st, err := sem.State(t.Context())
		expect.OK(t, err)
		st.Holders = nil // a lease that goes on is no change
		return st
	}
	acme := func(st engine.State) (k engine.KeyState) {
		for _, k = range st.Keys {
			if k.Key == "acme" {
				return k
			}
		}
		return k
	}
	for _, c := range []struct {
		before *url.Values
		f      url.Values
		says   string
	}{
		{nil, form("limit", "x", "limit", "4"), "Limit 12 → 4."},
		{nil, form("limit", "x", "limit", "4", "caps", "3"), "Limit 12 → 4."},
		{nil, form("limit", "x", "limit", "4", "caps", "-"), "Limit 12 → 4, caps 3 → no caps."},
		{nil, form("limit", "x", "limit", "12", "caps", "20,4"), "Limit 12 → 12, caps 3 → caps 20,4."},
		{nil, form("limit", "x", "pool", "gpu", "amount", "6"), "gpu 4 → 6."},
		{nil, form("limit", "x", "pool", "gpu", "amount", "0"), "gpu 4 → 0."},
		{nil, form("pause", "x"), "Grants open → paused."},
		{nil, form("set-key", "x", "key", "acme", "cap", "2"), "Key acme: a cap of 3 → a cap of 2, share 100 → 100."},
		{nil, form("set-key", "x", "key", "acme/a%2Fb", "cap", "2", "share", "300"), "Key acme/a%2Fb: no cap → a cap of 2, share 100 → 300."},
		{new(form("pause", "x")), form("unpause", "x"), "Grants paused → open."},
		{new(form("limit", "x", "limit", "5")), form("limit", "x", "limit", "6"), "Limit 5 → 6."},
		{nil, form("unset-limit", "x"), "Limit 5, kept → not kept."},
		{new(form("set-key", "x", "key", "acme", "share", "300")), form("set-key", "x", "key", "acme", "cap", "1"), "Key acme: a cap of 3 → a cap of 1, share 300 → 300."},
		{nil, form("unset-key", "x", "key", "acme"), "Key acme: a cap of 3 → a cap of 3, share 300 → 100."},
	} {
		if c.before != nil {
			s.post(303, "/act", *c.before)
		}
		was := state()
		says, undo := s.changed(c.f)
		if says != c.says || undo == nil {
			t.Errorf("%v: %q, undone by %v", c.f, says, undo)
			continue
		}
		s.post(403, "/act", undo, "Sec-Fetch-Site", "cross-site")
		s.post(303, "/act", undo)
		is := state()
		if is.Limit != was.Limit || is.Pinned != was.Pinned || is.Paused != was.Paused || is.Caps != was.Caps || fmt.Sprint(is.Pools) != fmt.Sprint(was.Pools) || acme(is) != acme(was) {
			t.Errorf("%v: %+v, undone: %+v", c.f, was, is)
		}
	}
	for _, what := range audit {
		if !strings.HasSuffix(what, " olga done") && !strings.HasPrefix(what, "refused") {
			t.Errorf("audit: %s", what)
		}
	}
	same(t, "audit", []string{audit[0], audit[2], audit[3]}, "limit olga done", "limit olga done", "unset-limit olga done")
}

// There is no Undo after a revocation, nor after a change that changed nothing. Neither
// links of others, nor pages of other semaphores, nor readers get one.
func TestWhatIsNotUndone(t *testing.T) {
	who := access.Who{Right: "admin"}
	s := open(t, dashboard.Options{Allow: func(*http.Request) access.Who { return who }})
	sem := s.semaphore("x", 12, nil)
	p := acquire(t, sem, 1)
	acquire(t, s.semaphore("y", 12, nil), 1)
	for _, f := range []url.Values{form("unpause", "x"), form("unset-limit", "x"), form("unset-key", "x", "key", "k"), form("revoke", "x", "permit", p.ID())} {
		if says, undo := s.changed(f); undo != nil || says == "" {
			t.Errorf("%v: %q, undone by %v", f, says, undo)
		}
	}
	w := s.post(303, "/act", form("limit", "x", "limit", "4"))
	cookie := w.Result().Cookies()[0].String()
	cookie, _, _ = strings.Cut(cookie, ";")
	expect.Has(t, s.get(200, "/semaphore?name=x&done=limit", "Cookie", cookie), ">Undo<")
	for _, path := range []string{"/semaphore?name=x", "/semaphore?name=x&done=pause", "/semaphore?name=y&done=limit"} {
		hasNot(t, s.get(200, path, "Cookie", cookie), ">Undo<")
	}
	hasNot(t, s.get(200, "/semaphore?name=x&done=limit&says=a&back=do%3Dpause"), ">Undo<")
	for _, broken := range []string{"sema_undo=%", "sema_undo=", cookie[:len(cookie)/2], "sema_undo=" + strings.Repeat("A", 5000)} {
		hasNot(t, s.get(200, "/semaphore?name=x&done=limit", "Cookie", broken), ">Undo<")
	}
	who.Right = "read"
	hasNot(t, s.get(200, "/semaphore?name=x&done=limit", "Cookie", cookie), ">Undo<")
	s.post(403, "/act", form("limit", "x", "limit", "12"))
}
