package dashboard_test

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"sema"
	"sema/access"
	"sema/dashboard"
	"sema/engine"
	"sema/engines/memengine"
	"sema/engines/redisengine"
	"sema/internal/fixture/expect"
	"sema/internal/fixture/redistest"
	"sema/internal/protocol"
)

// form makes what the confirmation page posts.
func form(do, name string, more ...string) url.Values {
	v := url.Values{"do": {do}, "name": {name}}
	for i := 0; i+1 < len(more); i += 2 {
		v.Set(more[i], more[i+1])
	}
	return v
}

func TestOperatorsAct(t *testing.T) {
	t.Run("memory", func(t *testing.T) { synctest.Test(t, func(t *testing.T) { operate(t, memengine.New()) }) })
	t.Run("redis", func(t *testing.T) {
		e, err := redisengine.New(redistest.Start(t).Client(), nil)
		expect.OK(t, err)
		operate(t, e)
	})
}

func operate(t *testing.T, e protocol.Engine) {
	var audit []access.Record
	s := openOn(t, e, dashboard.Options{Allow: admin, Audit: func(a access.Record) { audit = append(audit, a) }})
	sem := s.semaphore("x", 3, &sema.Options{Label: "job", Renew: 100 * time.Millisecond}) // a holder learns of a revocation when it renews
	p, q := acquire(t, sem, 2), acquire(t, sem, 1)
	page := "/semaphore?name=x"
	act := func(wants string, f url.Values) {
		t.Helper()
		expect.Has(t, s.get(200, "/act?"+f.Encode()), `method="post"`, `action="act"`, "Cancel", wants)
		to := s.post(303, "/act", f).Header().Get("Location")
		expect.Has(t, s.get(200, "/"+to), `role="status"`)
		last := audit[len(audit)-1]
		if last.What != f.Get("do") || last.Who != "olga" || last.Name != "x" || last.Permit != f.Get("permit") || last.Result != "done" || last.From == "" || last.Time.IsZero() {
			t.Errorf("audit: %+v", last)
		}
	}
	act(`id="ask-limit" name="limit" type="number" value="5"`, form("limit", "x", "limit", "5"))
	expect.Has(t, s.get(200, page), "3 of 5", "<dd>olga, ", "do=unset-limit")
	act("nobody loses a permit", form("limit", "x", "limit", "1"))
	if audit[1].Limit != 1 {
		t.Errorf("%+v", audit[1])
	}
	expect.Has(t, s.get(200, page), "3 of 1")
	expect.OK(t, s.operator("x").Set(t.Context(), sema.Rule{Observe: true}))
	more := acquire(t, sem, 1)
	expect.Until(t, "the look at it", func() bool { return strings.Contains(s.get(200, page), ">would wait<") })
	expect.Has(t, s.get(200, page), "Only watched", "1 of 1 would have waited, up to 3 at once; a limit of 4 is enough for 99 %")
	expect.OK(t, more.Release())
	act("forgotten", form("unset-limit", "x"))
	expect.Has(t, s.get(200, page), "<dd>the programs</dd>")
	act("Holders keep their permits", form("pause", "x"))
	expect.Has(t, s.get(200, page), ">Paused by olga:<", "do=unpause")
	queue(t, s.engine, "x", "w", 1)
	act("served at once", form("unpause", "x"))
	p.RetryAfter(time.Minute)
	expect.Until(t, "the cooldown", func() bool { return strings.Contains(s.get(200, page), "Nobody begins for") })
	expect.Has(t, s.get(200, page), "End the cooldown…", "do=unpause")
	act("A cooldown ends as well", form("unpause", "x"))
	act("Its holder is told to stop", form("revoke", "x", "permit", p.ID()))
	<-p.Context(t.Context()).Done()
	act("certainly gone", form("release", "x", "permit", q.ID()))
	if len(audit) != 8 {
		t.Errorf("%d changes were noted", len(audit))
	}

	s.get(409, "/act?"+form("release", "x", "permit", q.ID()).Encode())
	expect.Has(t, s.post(409, "/act", form("release", "x", "permit", q.ID())).Body.String(), "has no permit")
	s.post(409, "/act", form("remove", "x"))
	for i, want := range []string{"gone", "in-use"} {
		if a := audit[8+i]; a.Result != want {
			t.Errorf("a failure was noted as %+v, want %q", a, want)
		}
	}
	expect.OK(t, s.operator("idle").Set(t.Context(), sema.Rule{Limit: 2}))
	expect.Has(t, s.get(200, "/semaphore?name=idle"), "do=remove")
	to := s.post(303, "/act", form("remove", "idle")).Header().Get("Location")
	if !strings.HasPrefix(to, "./?") {
		t.Errorf("removed, and on to %s", to)
	}
	s.get(404, "/semaphore?name=idle")
}

// What is not right is refused, and changes nothing.
func TestChangesThatAreRefused(t *testing.T) {
	changes := 0
	s := open(t, dashboard.Options{Allow: admin, Audit: func(access.Record) { changes++ }})
	sem := s.semaphore("x", 3, nil)
	p := acquire(t, sem, 2)
	for _, f := range []url.Values{
		form("", "x"), form("explode", "x"), form("pause", ""), form("pause", "a\x00"), form("pause", strings.Repeat("n", 256)),
		form("limit", "x", "pool", "g u", "amount", "1"), form("limit", "x", "pool", "gpu", "amount", "-1"), form("limit", "x", "pool", "gpu", "amount", "many"), form("limit", "x", "limit", "0"), form("limit", "x", "limit", "-1"), form("limit", "x", "limit", "2147483648"),
		form("limit", "x", "limit", "1e3"), form("limit", "x", "limit", "99999999999999999999"), form("limit", "x", "limit", strings.Repeat("9", 5000)),
		form("revoke", "x"), form("revoke", "x", "permit", "<b>"), form("release", "x", "permit", "a-01-1"),
	} {
		s.get(400, "/act?"+f.Encode())
		s.post(400, "/act", f)
	}
	for _, f := range []url.Values{form("limit", "x"), form("limit", "x", "pool", "gpu"), form("limit", "x", "pool", "gpu", "amount", "")} { // they are asked about
		s.get(200, "/act?"+f.Encode())
		s.post(400, "/act", f)
	}
	zero := form("limit", "x", "limit", "0")
	expect.Has(t, s.get(400, "/act?"+zero.Encode()), "pause")
	expect.Has(t, s.post(400, "/act", zero).Body.String(), "pause")
	expect.Has(t, s.get(200, "/act?"+form("limit", "x").Encode()), `min="0"`) // or the browser refuses it, and names nothing
	s.get(404, "/act?"+form("pause", "nobody").Encode())
	s.post(404, "/act", form("pause", "nobody"))
	s.get(409, "/act?"+form("revoke", "x", "permit", "zz-1-1").Encode())
	s.post(400, "/act", url.Values{"name": {strings.Repeat("n", 20<<10)}}) // too large
	r := httptest.NewRequest(http.MethodPost, "/act", strings.NewReader("do=%zz"))
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	s.do(400, r, "Sec-Fetch-Site", "same-origin")
	for _, method := range []string{http.MethodPut, http.MethodDelete, http.MethodPatch} {
		s.do(405, httptest.NewRequest(method, "/act?"+form("pause", "x").Encode(), nil))
	}
	st, err := sem.State(t.Context())
	if err != nil || st.Paused || st.Limit != 3 || st.Pinned || st.Used != 2 || p.Err() != nil {
		t.Errorf("%+v %v %v", st, err, p.Err())
	}
	if changes != 1 { // of the semaphore that is not there
		t.Errorf("%d changes were noted", changes)
	}
}

func TestPostsOfOthersAreRefused(t *testing.T) {
	s := open(t, dashboard.Options{Allow: admin, Login: func(_ *http.Request, token string) (access.Who, bool) { return admin(nil), token == "right" }})
	sem := s.semaphore("x", 3, nil)
	acquire(t, sem, 1)
	for _, headers := range [][]string{
		{"Sec-Fetch-Site", "cross-site"},
		{"Sec-Fetch-Site", "same-site"}, // a sister host
		{"Origin", "https://evil.example"},
		{"Origin", "null"},
		{"Origin", "http://example.com:81"}, // another port
		{"Sec-Fetch-Site", "cross-site", "Origin", "http://example.com"},
		{"X-Nothing", "1"}, // neither header
	} {
		expect.Has(t, s.post(403, "/act", form("pause", "x"), headers...).Body.String(), "nothing was changed")
		if w := s.post(403, "/login", url.Values{"token": {"right"}}, headers...); w.Header().Get("Set-Cookie") != "" {
			t.Errorf("%v logged somebody in", headers)
		}
		s.post(403, "/logout", nil, headers...)
	}
	if st, err := sem.State(t.Context()); err != nil || st.Paused {
		t.Fatalf("%+v %v", st, err)
	}
	for _, headers := range [][]string{{"Sec-Fetch-Site", "same-origin"}, {"Origin", "http://example.com"}, {"Sec-Fetch-Site", "none"}} {
		s.post(303, "/act", form("pause", "x"), headers...)
	}
}

func TestATrustedOrigin(t *testing.T) {
	origins := http.NewCrossOriginProtection()
	expect.OK(t, origins.AddTrustedOrigin("https://sema.example.org"))
	s := open(t, dashboard.Options{Allow: admin, Origins: origins})
	acquire(t, s.semaphore("x", 3, nil), 1)
	s.post(303, "/act", form("pause", "x"), "Origin", "https://sema.example.org")
	s.post(403, "/act", form("pause", "x"), "Origin", "https://sema.example.com")
}

func TestReadersChangeNothing(t *testing.T) {
	refused := 0
	s := open(t, dashboard.Options{Audit: func(a access.Record) {
		if a.What != "refused" {
			t.Errorf("%+v", a)
		}
		refused++
	}})
	sem := s.semaphore("x", 3, nil)
	p := acquire(t, sem, 1)
	for _, f := range []url.Values{form("pause", "x"), form("limit", "x", "limit", "1"), form("revoke", "x", "permit", p.ID()), form("explode", "")} {
		s.get(403, "/act?"+f.Encode())
		s.post(403, "/act", f)
	}
	if st, err := sem.State(t.Context()); err != nil || st.Paused || st.Limit != 3 {
		t.Errorf("%+v %v", st, err)
	}
	if refused != 4 { // each post, and no page
		t.Errorf("%d lines say that something was refused", refused)
	}
	none := open(t, dashboard.Options{Allow: func(*http.Request) access.Who { return access.Who{} }})
	for _, path := range []string{"/", "/semaphore?name=x", "/act?do=pause&name=x"} {
		none.get(403, path)
	}
	none.post(403, "/act", form("pause", "x"))
	none.get(200, "/style.css")
	none.get(404, "/login") // nobody logs in
}

func TestLogin(t *testing.T) {
	s := open(t, dashboard.Options{Login: func(_ *http.Request, token string) (access.Who, bool) {
		switch token {
		case "root":
			return access.Who{Right: "admin", Name: "root <&>"}, true
		case "reader":
			return access.Who{Right: "read", Prefixes: []string{"team-a/"}, Name: "reader"}, true
		case "user":
			return access.Who{}, true
		}
		return access.Who{}, false
	}})
	acquire(t, s.semaphore("team-a/x", 3, nil), 1)
	acquire(t, s.semaphore("team-b/x", 3, nil), 1)
	for _, path := range []string{"/", "/semaphore?name=team-a/x", "/act?do=pause&name=team-a/x"} {
		if to := s.do(303, httptest.NewRequest(http.MethodGet, path, nil)).Header().Get("Location"); to != "login" {
			t.Errorf("%s leads to %s", path, to)
		}
	}
	expect.Has(t, s.get(200, "/login"), `type="password"`, `<label for="token">`)
	for _, token := range []string{"", "wrong", "user", "a;b", "a\r\nb", strings.Repeat("x", 8000)} {
		w := s.post(401, "/login", url.Values{"token": {token}})
		if c := w.Header().Get("Set-Cookie"); c != "" {
			t.Errorf("%q sets %s", token, c)
		}
		expect.Has(t, w.Body.String(), "There is no such token", `role="alert"`)
	}
	login := func(token string) string {
		w := s.post(303, "/login", url.Values{"token": {token}})
		c := w.Result().Cookies()[0]
		if !c.HttpOnly || c.SameSite != http.SameSiteStrictMode || c.Secure || w.Header().Get("Location") != "./" {
			t.Errorf("%+v, on to %s", c, w.Header().Get("Location"))
		}
		return c.Name + "=" + c.Value
	}
	root, reader := login("root"), login("reader")
	expect.Has(t, s.get(200, "/", "Cookie", root), "team-a/x", "team-b/x", "root &lt;&amp;&gt;", "Log out")
	page := s.get(200, "/", "Cookie", reader)
	expect.Has(t, page, "team-a/x", "1 to 1 of 1 semaphores", "read only")
	hasNot(t, page, "team-b/x")
	s.get(200, "/semaphore?name=team-a/x", "Cookie", reader)
	s.get(404, "/semaphore?name=team-b/x", "Cookie", reader)
	s.post(403, "/act", form("pause", "team-a/x"), "Cookie", reader, "Sec-Fetch-Site", "same-origin")
	s.post(303, "/act", form("pause", "team-a/x"), "Cookie", root, "Sec-Fetch-Site", "same-origin")
	s.post(303, "/act", form("pause", "team-a/x"), "Cookie", "sema_token=wrong", "Sec-Fetch-Site", "same-origin") // to the login
	out := s.post(303, "/logout", nil).Result().Cookies()[0]
	if out.MaxAge >= 0 || out.Value != "" {
		t.Errorf("%+v", out)
	}
	tls := httptest.NewRequest(http.MethodPost, "https://example.com/login", strings.NewReader("token=root"))
	tls.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	if c := s.do(303, tls, "Sec-Fetch-Site", "same-origin").Result().Cookies()[0]; !c.Secure {
		t.Errorf("over TLS: %+v", c)
	}
}

func TestAnAdminOfSomeNames(t *testing.T) {
	s := open(t, dashboard.Options{Allow: func(*http.Request) access.Who {
		return access.Who{Right: "admin", Prefixes: []string{"a/", "b/"}}
	}})
	for _, name := range []string{"a/x", "b/x", "c/x"} {
		acquire(t, s.semaphore(name, 3, nil), 1)
	}
	s.post(303, "/act", form("pause", "b/x"))
	s.post(404, "/act", form("pause", "c/x"))
	hasNot(t, s.get(200, "/"), "c/x")
}

// Names and labels are shown as written, and only as text.
func TestHTMLInLabelsIsText(t *testing.T) {
	s := open(t, dashboard.Options{Allow: admin})
	evil := `"><script>alert(1)</script><img src=x onerror=alert(1)>`
	name := `n' onmouseover="alert(1)" javascript:alert(1) {{.}} ` + evil
	id := stepped(t, s.engine, name, engine.Client{Host: evil, PID: -1, Label: evil},
		protocol.Request{Kind: protocol.Ask, ID: engine.ID{Weight: 1}, Limit: 1, Lease: engine.MaxLease},
		protocol.Request{Kind: protocol.Ask, ID: engine.ID{Weight: 1}, Limit: 1, Lease: engine.MaxLease, Ticket: engine.MaxLease, Wait: true})[0]
	q := url.QueryEscape(name)
	for _, page := range []string{
		s.get(200, "/"), s.get(200, "/semaphore?name="+q), s.get(200, "/?q="+url.QueryEscape(evil)),
		s.get(200, "/act?do=revoke&name="+q+"&permit="+id), s.get(400, "/act?do="+url.QueryEscape(evil)+"&name="+q),
		s.get(400, "/act?do=revoke&name="+q+"&permit="+url.QueryEscape(evil)), s.get(200, "/?done="+url.QueryEscape(evil)),
		s.post(400, "/act", form("limit", name, "limit", evil)).Body.String(),
	} {
		hasNot(t, page, "<script>", "<img", `onmouseover="`, "onerror=alert(1)>")
		if strings.Contains(page, " style=") || strings.Contains(page, " onclick") || strings.Contains(page, "<style") {
			t.Errorf("something is inline:\n%s", page)
		}
	}
	s.post(303, "/act", form("pause", name)) // and such a name works
}
