package dashboard_test

import (
	"encoding/json"
	"fmt"
	"html"
	"net/url"
	"regexp"
	"runtime"
	"slices"
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
	"sema/internal/fixture/opened"
	"sema/internal/fixture/redistest"
	"sema/internal/protocol"
	"sema/watch"
)

// hold takes a permit of a key until the test ends.
func hold(t *testing.T, s *sema.Semaphore, path ...string) {
	t.Helper()
	p, err := s.Acquire(t.Context(), sema.For(path...))
	expect.OK(t, err)
	t.Cleanup(func() { _ = p.Release() })
}

// asked is a session that asks for what a test says, and whose asks nobody renews.
func (s *site) asked(name string, limit, perKey int, keys ...string) (ids []string) {
	s.t.Helper()
	var all []protocol.Request
	for _, key := range keys {
		all = append(all, protocol.Request{
			Kind: protocol.Ask, ID: engine.ID{Weight: 1}, Limit: limit, Caps: engine.Caps{perKey}, Target: protocol.ParseTarget(key), Lease: time.Hour, Ticket: time.Hour, Wait: true,
		})
	}
	return stepped(s.t, s.engine, name, engine.Client{Host: "h", PID: 1, Label: "asked"}, all...)
}

// stepped makes one call of a session that ends with the test, and returns the ids of its requests.
func stepped(t testing.TB, e sema.Engine, name string, who engine.Client, requests ...protocol.Request) (ids []string) {
	t.Helper()
	raw := opened.Session(t, e, name, who)
	for i := range requests {
		requests[i].ID.Client, requests[i].ID.Number = raw.Client(), uint64(i+1)
		ids = append(ids, requests[i].ID.String())
	}
	_, err := raw.Step(t.Context(), protocol.Call{Number: 1, Requests: requests})
	expect.OK(t, err)
	return ids
}

// cells are those of a column of a page's list, in their order.
func cells(page, list, label string) (found []string) {
	_, page, _ = strings.Cut(page, `data-list="`+list+`">`)
	page, _, _ = strings.Cut(page, "</tbody>")
	for _, cell := range strings.Split(page, `data-label="`+label+`">`)[1:] {
		cell, _, _ = strings.Cut(cell, "</td>")
		for strings.Contains(cell, "<") {
			before, rest, _ := strings.Cut(cell, "<")
			_, after, _ := strings.Cut(rest, ">")
			cell = before + after
		}
		found = append(found, strings.TrimSpace(cell))
	}
	return found
}

func same(t *testing.T, what string, got []string, want ...string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("%s: %q, want %q", what, got, want)
	}
}

func TestAPageShowsKeysAndWhyTheyWait(t *testing.T) {
	s := open(t, dashboard.Options{})
	s.asked("x", 3, 2, "acme", "acme", "beta", "acme", "acme", "acme", "gamma", "beta")
	page := s.get(200, "/semaphore?name=x")
	expect.Has(t, page, `class="keyed"`, ">3 keys<", `data-key="=acme"`, "3 wait for acme, which holds 2 of its 2.")
	same(t, "held", cells(page, "keys", "Held"), "2 of 2", "1 of 2", "0 of 2")
	same(t, "share", cells(page, "keys", "Share"), "100", "100", "100")
	same(t, "waiting", cells(page, "keys", "Waiting"), "3", "1", "1")
	same(t, "why", cells(page, "keys", "Waits for"), "keys before acme: 2; acme holds 2 of its 2; 3 of 3 held", "keys before beta: 1; 3 of 3 held", "3 of 3 held")
	same(t, "holders", cells(page, "holders", "Key, takes"), "acme", "acme", "beta")
	same(t, "waiters", cells(page, "waiters", "Key, wants"), "gamma", "beta", "acme", "acme", "acme")
	same(t, "places", cells(page, "waiters", "Place"), "1", "1", "1", "2", "3")
	same(t, "waits", cells(page, "waiters", "Waits for"), "3 of 3 held", "keys before beta: 1; 3 of 3 held",
		"keys before acme: 2; acme holds 2 of its 2; 3 of 3 held", "behind 1 other of acme; keys before acme: 2; acme holds 2 of its 2; 3 of 3 held",
		"behind 2 others of acme; keys before acme: 2; acme holds 2 of its 2; 3 of 3 held")
	hasNot(t, page, "act?") // read only

	s.asked("plain", 1, 0, "", "")
	page = s.get(200, "/semaphore?name=plain")
	hasNot(t, page, `class="keyed"`, "data-key=\"=") // what shows keys is there, and is not shown
	same(t, "places without keys", cells(page, "waiters", "Place"), "1")
}

// Pools are facts of a semaphore, what a permit takes of them is beside its weight, and nothing speaks of keys.
func TestAPageShowsPools(t *testing.T) {
	s := open(t, dashboard.Options{Allow: admin})
	s.asked("x", 3, 0, "")
	expect.OK(t, s.operator("x").Set(t.Context(), sema.Rule{Pools: "gpu=4,licence=1"}))
	s.asked("x", 3, 0, "\x02gpu=2,licence=1", "\x02gpu=3", "\x02gpu=1", "\x02licence=1")
	page := s.get(200, "/semaphore?name=x")
	expect.Has(t, page, "licence is out:</b>", "1 of 1 held by asked</a>", "1 waits for it</a>", "pool=gpu", "pool=licence")
	same(t, "in use", cells(page, "pools", "In use"), "2 of 4", "1 of 1")
	same(t, "waiting", cells(page, "pools", "Waiting"), "2", "1")
	same(t, "held by", cells(page, "pools", "Held by"), "asked", "out: asked")
	same(t, "taken", cells(page, "holders", "Key, takes"), "", "gpu 2 licence 1")
	same(t, "wanted", cells(page, "waiters", "Key, wants"), "gpu 3", "gpu 1", "licence 1")
	same(t, "places", cells(page, "waiters", "Place"), "1", "2", "1")
	same(t, "waits", cells(page, "waiters", "Waits for"), "2 of 4 of gpu held, 3 wanted", "behind 1 other", "1 of 1 of licence held; 2 of 3 held, 1 reserved for a caller")
	hasNot(t, page, `class="keyed"`, "data-key=\"=", `value="-"`)
}

// Keys of several names are rows of a tree, with links about the whole key; a key's own callers have none.
func TestAPageShowsKeysBelowKeys(t *testing.T) {
	const org, user = "01890a5d-ac96-774b-bcce-b302099a8057", "7c9e6679-7425-40de-944b-e07fc1f90ae7"
	of := func(names ...string) string { return strings.Join(names, engine.KeySeparator) }
	s := open(t, dashboard.Options{Allow: admin})
	s.asked("x", 9, 3, of("acme", "alice"), of("acme", "a/b"), of("acme"), of("acme", "alice"), of("acme", "alice"), "", of(org, user))
	expect.OK(t, s.operator("x").Set(t.Context(), sema.Rule{Share: 300}, "acme", "alice"))
	page := s.get(200, "/semaphore?name=x")
	var rows []string
	for _, row := range regexp.MustCompile(`data-key="=([^"]*)">\n<th role="rowheader" scope="row" class="level(\d)"><bdi title="([^"]*)">([^<]*)<`).FindAllStringSubmatch(page, -1) {
		rows = append(rows, strings.Join(row[1:], "|"))
	}
	same(t, "rows", rows, "acme|1|acme|acme", `acme/alice|2|acme/alice|alice`, `acme/|2|acme itself|itself`, `acme/a%2Fb|2|acme/a%2Fb|a/b`, "|1|(none)|(none)",
		org+"|1|"+org+"|01890a5d…099a8057", org+"/"+user+`|2|`+org+"/"+user+"|7c9e6679…c1f90ae7")
	same(t, "why", cells(page, "keys", "Waits for"), "acme holds 3 of its 3", "acme holds 3 of its 3", "", "", "", "", "")
	same(t, "held", cells(page, "keys", "Held"), "3 of 3", "1", "1", "1", "1", "1 of 3", "1")
	expect.Has(t, page, ">7 keys<", "do=set-key&amp;key=acme%2Falice&amp;", `<bdi title="acme/alice">alice</bdi> <span class="less">set</span>`, "do=set-key&amp;key=acme%2Fa%252Fb&amp;")
	hasNot(t, page, "key=acme%2F&amp;", "key=&amp;")
	same(t, "holders", cells(page, "holders", "Key, takes")[:3], "acme/alice", "acme/a%2Fb", "acme")
	expect.Has(t, s.get(200, "/?q=acme/alice"), "for <bdi>acme/alice</bdi>")
}

func TestKeysArePaged(t *testing.T) {
	s := open(t, dashboard.Options{Rows: 2})
	s.asked("x", 1, 0, "a", "b", "c", "c", "d", "d", "d", "e", "e", "e", "e", "f", "f", "f", "f", "f")
	page := s.get(200, "/semaphore?name=x")
	expect.Has(t, page, "1 to 2 of 6 keys", `href="semaphore?keys=2&amp;name=x"`, `href="semaphore?many=1&amp;name=x#keys"`)
	same(t, "the first page", cells(page, "keys", "Waiting"), "5", "4")
	page = s.get(200, "/semaphore?name=x&keys=3&waiters=2")
	expect.Has(t, page, "5 to 6 of 6 keys", `href="semaphore?keys=2&amp;name=x&amp;waiters=2"`, "3 to 4 of 15 waiters")
	same(t, "the second page", cells(page, "keys", "Waiting"), "1", "")
	expect.Has(t, s.get(200, "/semaphore?name=x&keys=9"), "No keys on this page: there are 6 in all")
}

func TestOperatorsSetWhatAKeyMayHold(t *testing.T) {
	t.Run("memory", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) { operateKeys(t, memengine.New(), `acme "& sons"`) })
	})
	t.Run("below another", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) { operateKeys(t, memengine.New(), `acme "& sons"`, "50% of a/b") })
	})
	t.Run("redis", func(t *testing.T) {
		e, err := redisengine.New(redistest.Start(t).Client(), nil)
		expect.OK(t, err)
		operateKeys(t, e, `acme "& sons"`)
	})
}

// operateKeys does to a key of one or two names what operators do. Keys have a cap of 2 at each level.
func operateKeys(t *testing.T, e protocol.Engine, path ...string) {
	var audit []access.Record
	s := openOn(t, e, dashboard.Options{Allow: admin, Audit: func(a access.Record) { audit = append(audit, a) }})
	made, err := engine.NewKey(path...)
	expect.OK(t, err)
	key := made.String()
	sem := s.semaphore("x", 9, &sema.Options{Caps: sema.Caps{2, 2}})
	hold(t, sem, path...)
	act := func(wants string, f url.Values) access.Record {
		t.Helper()
		expect.Has(t, s.get(200, "/act?"+f.Encode()), `method="post"`, "Cancel", wants)
		to := s.post(303, "/act", f).Header().Get("Location")
		expect.Has(t, s.get(200, "/"+to), `role="status"`)
		last := audit[len(audit)-1]
		if last.What != f.Get("do") || last.Who != "olga" || last.Name != "x" || last.Result != "done" || last.Key.String() != f.Get("key") {
			t.Errorf("audit: %+v", last)
		}
		return last
	}
	of := func() engine.KeyState {
		t.Helper()
		st, err := sem.State(t.Context())
		expect.OK(t, err)
		for _, k := range st.Keys {
			if k.Key.String() == key {
				return k
			}
		}
		t.Fatalf("no key: %+v", st.Keys)
		return engine.KeyState{}
	}
	expect.Has(t, s.get(200, "/semaphore?name=x"), "do=set-key", "of=caps", "<b>2,2</b>")
	expect.Has(t, s.get(200, "/act?do=limit&name=x"), `name="caps" type="text" value="2,2"`)
	hasNot(t, s.get(200, "/act?"+form("set-key", "x", "key", key).Encode()), "do=unset-key")

	a := act("<bdi>"+html.EscapeString(key)+"</bdi>", form("set-key", "x", "key", key, "cap", "5", "share", "300"))
	if a.Cap != 5 || a.Share != 300 {
		t.Errorf("audit: %+v", a)
	}
	if k := of(); k.Cap != 5 || k.Share != 300 || !k.Ruled {
		t.Errorf("%+v", k)
	}
	expect.Has(t, s.get(200, "/semaphore?name=x"), `<span class="less">set</span>`, "sets key "+html.EscapeString(key)+" to a cap of 5, a share of 300")
	expect.Has(t, s.get(200, "/act?"+form("set-key", "x", "key", key).Encode()), `name="cap" type="number" value="5" placeholder="as it is" inputmode="numeric" min="1" max="2147483647"`, `value="300"`, "do=unset-key")

	a = act(`value="5"`, form("set-key", "x", "key", key, "cap", "", "share", "50"))
	if k := of(); a.Cap != 0 || a.Share != 50 || k.Cap != 5 || k.Share != 50 {
		t.Errorf("%+v, audit: %+v", k, a)
	}
	act("that all keys have", form("unset-key", "x", "key", key))
	if k := of(); k.Cap != 2 || k.Share != 100 || k.Ruled {
		t.Errorf("%+v", k)
	}
	expect.Has(t, s.get(200, "/semaphore?name=x"), "unsets cap and share of key "+html.EscapeString(key))

	caps := func(a access.Record) string {
		text, err := json.Marshal(a.Caps)
		expect.OK(t, err)
		return string(text)
	}
	a = act(`value="3, 3"`, form("limit", "x", "limit", "7", "caps", "3, 3"))
	if k := of(); caps(a) != "[3,3,0]" || a.Limit != 7 || k.Cap != 3 {
		t.Errorf("%+v, audit: %+v", k, a)
	}
	a = act(`value="-"`, form("limit", "x", "limit", "7", "caps", "-"))
	if k := of(); caps(a) != "[0,0,0]" || k.Cap != 0 {
		t.Errorf("%+v, audit: %+v", k, a)
	}
	if a = act(`value="8"`, form("limit", "x", "limit", "8", "caps", "")); a.Caps != nil {
		t.Errorf("audit: %+v", a)
	}
	expect.Has(t, s.get(200, "/semaphore?name=x"), "sets the limit to 7, caps 3,3<", "sets the limit to 7, no caps<", "sets the limit to 8<")

	noted := len(audit)
	for _, f := range []url.Values{
		form("unset-key", "x"), form("set-key", "x", "key", "a\x00b"), form("set-key", "x", "key", strings.Repeat("k", engine.MaxKey+1)),
		form("set-key", "x", "key", "a", "cap", "many"), form("set-key", "x", "key", "a", "share", "1.5"),
		form("limit", "x", "limit", "3", "caps", "-1"), form("limit", "x", "limit", "3", "caps", "x"), form("limit", "x", "limit", "3", "caps", "1,2,3,4"),
		form("set-key", "x", "key", "a/b/c/d", "cap", "1"), form("set-key", "x", "key", "a//b", "cap", "1"), form("unset-key", "x", "key", "50%"),
	} {
		s.get(400, "/act?"+f.Encode())
		s.post(400, "/act", f)
	}
	if len(audit) != noted {
		t.Errorf("what cannot be read is noted: %+v", audit[noted:])
	}
	for _, f := range []url.Values{form("set-key", "x", "key", "a", "cap", "-1"), form("set-key", "x", "key", "a", "share", "1001")} {
		s.post(400, "/act", f)
	}
	s.post(404, "/act", form("set-key", "nobody", "key", "a", "cap", "1"))
}

func TestHTMLInKeysIsText(t *testing.T) {
	s := open(t, dashboard.Options{Allow: admin})
	evil := `"><script>alert(1)</script>' onmouseover="alert(1)" {{.}}`
	s.asked("x", 1, 1, evil, evil)
	q := url.QueryEscape(engine.Key(evil).String())
	for _, page := range []string{s.get(200, "/semaphore?name=x"), s.get(200, "/?q="+q), s.get(200, "/act?do=set-key&name=x&key="+q), s.get(200, "/act?do=unset-key&name=x&key="+q)} {
		hasNot(t, page, "<script>", `onmouseover="alert`)
		expect.Has(t, page, "&#34;&gt;&lt;script&gt;alert(1)&lt;%2Fscript&gt;")
	}
	s.post(303, "/act", form("set-key", "x", "key", engine.Key(evil).String(), "cap", "2")) // and such a key works
	expect.Has(t, s.get(200, "/semaphore?name=x"), "sets key &#34;&gt;")
}

// A key is found on the list, and in what happened.
func TestKeysAreFound(t *testing.T) {
	s := open(t, dashboard.Options{})
	s.asked("x", 3, 0, "acme", "beta")
	s.get(200, "/semaphore?name=x") // looks
	page := s.get(200, "/?q=acm")
	expect.Has(t, page, "Who was found", "for <bdi>acme</bdi>", ">asked<")
	hasNot(t, page, "for <bdi>beta</bdi>")
	expect.Has(t, s.get(200, "/semaphore?name=x"), "<bdi>asked for acme</bdi> holds a permit", "<bdi>asked for beta</bdi> holds a permit")
}

// tenants has each of so many keys hold one, and twice as many callers wait.
func (s *site) tenants(n int) {
	s.t.Helper()
	var keys []string
	for range 3 {
		for i := range n {
			keys = append(keys, fmt.Sprintf("tenant-%05d", i))
		}
	}
	s.asked("x", n, 1, keys...)
}

// Ten thousand keys are pages like any others.
func TestTenThousandKeys(t *testing.T) {
	s := open(t, dashboard.Options{Allow: admin})
	s.tenants(10_000)
	page := s.get(200, "/semaphore?name=x")
	expect.Has(t, page, "1 to 20 of 10,000 keys", ">20,000 waiters<")
	if len(page) > 250_000 {
		t.Errorf("the page is %d bytes", len(page))
	}
	expect.Has(t, s.get(200, "/semaphore?name=x&many=1&keys=100&waiters=200"), "9,901 to 10,000 of 10,000 keys", "19,901 to 20,000 of 20,000 waiters")
}

// A page of a semaphore with keys, each of which holds one and has two that wait, looked
// at anew for each page.
func BenchmarkPageOfKeys(b *testing.B) {
	for _, keys := range []int{10, 1_000, 10_000} {
		for _, on := range []string{"memory", "redis"} {
			b.Run(fmt.Sprintf("%s/%d", on, keys), func(b *testing.B) {
				var e protocol.Engine = memengine.New()
				if on == "redis" {
					var err error
					e, err = redisengine.New(redistest.Start(b).Client(), nil)
					expect.OK(b, err)
				}
				w, err := watch.New(e, &watch.Options{Fresh: time.Millisecond})
				expect.OK(b, err)
				defer w.Close()
				s := openOn(b, e, dashboard.Options{Allow: admin, Watcher: w})
				s.tenants(keys)
				size := 0
				for b.Loop() {
					time.Sleep(2 * time.Millisecond) // what was seen is old
					size = len(s.get(200, "/semaphore?name=x"))
				}
				b.ReportMetric(float64(size)/1000, "kB/page")
				var heap runtime.MemStats
				runtime.GC()
				runtime.ReadMemStats(&heap)
				b.ReportMetric(float64(heap.HeapAlloc)/1e6, "MB-in-use")
			})
		}
	}
}
