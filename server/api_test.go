package server_test

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"sema/access"
	"sema/dashboard"
	"sema/engine"
	"sema/engines/memengine"
	"sema/internal/fixture/expect"
	"sema/server"
)

func TestEveryRouteIsDescribed(t *testing.T) {
	virtual(t, server.Options{}, func(t *testing.T, h *testServer) {
		var described []string
		for path, item := range h.spec.doc["paths"].(map[string]any) {
			for method, op := range item.(map[string]any) {
				described = append(described, fmt.Sprint(strings.ToUpper(method), " ", path, " ", at(op, "x-right")))
			}
		}
		slices.Sort(described)
		if known := server.Routes(); !slices.Equal(known, described) {
			t.Errorf("routes:\n%s\ndescribed:\n%s", strings.Join(known, "\n"), strings.Join(described, "\n"))
		}
	})
}

func TestAcquireRenewRelease(t *testing.T) {
	virtual(t, server.Options{}, func(t *testing.T, h *testServer) {
		a := h.want(200, "PUT", "/v1/semaphores/x/permits/job-1", `{"limit":1,"label":"first","lease_seconds":20}`)
		if a.field("id") != "job-1" || a.field("token").(float64) == 0 || a.field("lease_seconds").(float64) > 20 {
			t.Errorf("%s", a.body)
		}
		again := h.want(200, "PUT", "/v1/semaphores/x/permits/job-1", `{"limit":1,"label":"first","lease_seconds":20}`)
		if again.field("token") != a.field("token") || again.field("permit") != a.field("permit") {
			t.Errorf("asked again: %s, before: %s", again.body, a.body)
		}
		h.want(409, "PUT", "/v1/semaphores/x/permits/job-1", `{"limit":1,"weight":2}`)
		refused := h.want(429, "PUT", "/v1/semaphores/x/permits/job-2", `{"limit":1}`)
		if refused.header.Get("Retry-After") == "" {
			t.Error("no Retry-After")
		}
		h.want(429, "POST", "/v1/semaphores/x/permits", `{"limit":1,"wait_seconds":0.05}`)
		renewed := h.want(200, "POST", "/v1/semaphores/x/permits/job-1/renew", `{"lease_seconds":60}`)
		if renewed.field("lease_seconds").(float64) < 50 || renewed.field("token") != a.field("token") {
			t.Errorf("renewed: %s", renewed.body)
		}
		h.want(200, "POST", "/v1/semaphores/x/permits/job-1/renew", ``)
		show := h.want(200, "GET", "/v1/semaphores/x", ``)
		if show.field("used") != 1.0 || !strings.Contains(string(show.body), `"label":"first"`) {
			t.Errorf("%s", show.body)
		}
		h.want(204, "DELETE", "/v1/semaphores/x/permits/job-1", ``)
		h.want(410, "DELETE", "/v1/semaphores/x/permits/job-1", ``)
		h.want(410, "POST", "/v1/semaphores/x/permits/job-1/renew", ``)
		h.want(410, "DELETE", "/v1/semaphores/nobody/permits/job-1", ``)
		if st := h.state("x"); st.Used != 0 || len(st.Waiters) != 0 {
			t.Errorf("left over: %+v", st)
		}
		heavy := h.want(409, "PUT", "/v1/semaphores/x/permits/job-3", `{"limit":1,"weight":5}`)
		if heavy.field("type") != "urn:sema:too-heavy" || !strings.Contains(heavy.field("detail").(string), "weight 5 is above the limit 1:") {
			t.Errorf("%s", heavy.body)
		}
		slot := h.want(200, "PUT", "/v1/semaphores/s/permits/job", `{"limit":2,"slot":true}`)
		if slot.field("slot") != 0.0 {
			t.Errorf("%s", slot.body)
		}
	})
}

func TestALongPollIsGrantedInItsTurn(t *testing.T) {
	virtual(t, server.Options{}, func(t *testing.T, h *testServer) {
		h.want(200, "PUT", "/v1/semaphores/x/permits/a", `{"limit":1}`)
		tokens := make([]float64, 10)
		var all sync.WaitGroup
		for i := range tokens {
			all.Go(func() {
				path := fmt.Sprintf("/v1/semaphores/x/permits/w%d", i)
				a, err := h.try(context.Background(), "PUT", path, `{"limit":1,"wait_seconds":60}`)
				if err != nil || a.status != 200 {
					t.Errorf("%d %s %v", a.status, a.body, err)
					return
				}
				tokens[i] = a.field("token").(float64)
				if a.field("lease_seconds").(float64) < 20 {
					t.Errorf("a hand-off with a short lease: %s", a.body)
				}
				if a, err := h.try(context.Background(), "DELETE", path, ""); err != nil || a.status != 204 {
					t.Errorf("%d %s %v", a.status, a.body, err)
				}
			})
			h.waiting("x", i+1)
			time.Sleep(time.Millisecond) // so that the next request comes later
		}
		h.want(204, "DELETE", "/v1/semaphores/x/permits/a", ``)
		all.Wait()
		if !slices.IsSorted(tokens) {
			t.Errorf("granted out of order: %v", tokens)
		}
	})
}

func TestADroppedConnectionLeavesTheQueue(t *testing.T) {
	virtual(t, server.Options{}, func(t *testing.T, h *testServer) {
		h.want(200, "PUT", "/v1/semaphores/x/permits/a", `{"limit":1}`)
		ctx, cancel := context.WithCancel(context.Background())
		answered := h.later(ctx, "/v1/semaphores/x/permits/b", `{"limit":1,"wait_seconds":60}`)
		h.waiting("x", 1)
		cancel()
		if a := <-answered; a.status != 0 {
			t.Errorf("%d %s", a.status, a.body)
		}
		h.waiting("x", 0)
		h.want(204, "DELETE", "/v1/semaphores/x/permits/a", ``)
		h.want(200, "PUT", "/v1/semaphores/x/permits/c", `{"limit":1}`)
	})
}

// The connection drops at the moment of the grant. Then the client has the answer, or the
// permit is released, or another ask returns the same permit. A permit that another ask has
// returned is not released.
func TestADropAtTheMomentOfTheGrantLeaksNothing(t *testing.T) {
	virtual(t, server.Options{}, func(t *testing.T, h *testServer) {
		const wish = `{"limit":1,"wait_seconds":60,"lease_seconds":1000}`
		answered := 0
		for i := range 500 {
			h.want(200, "PUT", "/v1/semaphores/x/permits/gate", `{"limit":1}`)
			ctx, cancel := context.WithCancel(context.Background())
			var all sync.WaitGroup
			got := false
			path := fmt.Sprintf("/v1/semaphores/x/permits/w%d", i)
			all.Go(func() {
				a, err := h.try(ctx, "PUT", path, wish)
				got = err == nil && a.status == 200
			})
			h.waiting("x", 1)
			all.Go(func() { h.do("DELETE", "/v1/semaphores/x/permits/gate", "") })
			all.Go(func() {
				for range i { // to try different moments
					runtime.Gosched()
				}
				cancel()
			})
			all.Wait()
			if got {
				answered++
			} else {
				h.want(200, "PUT", path, wish)
			}
			if i%2 == 0 {
				synctest.Wait() // until the server has noticed the end of the first connection
			}
			h.want(204, "DELETE", path, "")
		}
		if st := h.state("x"); st.Used > 0 || len(st.Waiters) > 0 {
			t.Errorf("left over: %+v", st)
		}
		t.Logf("%d of 500 were answered before the drop", answered)
	})
}

// A caller with a permit keeps it when its connection drops during another ask.
func TestADropWhileAskingAgainTakesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var takes atomic.Int64 // each step
		h := newVirtual(t, between{memengine.New(), func(call string) error {
			if call == "step" {
				time.Sleep(time.Duration(takes.Load()))
			}
			return nil
		}}, server.Options{})
		permit := h.want(200, "PUT", "/v1/semaphores/x/permits/a", `{"limit":1}`).field("permit").(string)
		drop := func() {
			t.Helper()
			takes.Store(int64(time.Second))
			ctx, cancel := context.WithTimeout(context.Background(), time.Second/2)
			defer cancel()
			_, err := h.try(ctx, "PUT", "/v1/semaphores/x/permits/a", `{"limit":1,"wait_seconds":60}`)
			expect.Is(t, err, context.DeadlineExceeded)
			time.Sleep(5 * time.Second) // until the server has handled the drop
			takes.Store(0)
		}
		drop()
		h.want(200, "POST", "/v1/semaphores/x/permits/a/renew", ``)
		// A released permit leaves no ticket behind.
		h.want(204, "DELETE", "/v1/semaphores/x/holders/"+permit, ``)
		h.want(200, "PUT", "/v1/semaphores/x/permits/b", `{"limit":1}`)
		drop()
		if st := h.state("x"); st.Used != 1 || len(st.Waiters) != 0 {
			t.Errorf("%+v", st)
		}
		h.want(204, "DELETE", "/v1/semaphores/x/permits/b", ``)
		h.want(410, "DELETE", "/v1/semaphores/x/permits/a", ``)
	})
}

func TestOperators(t *testing.T) {
	virtual(t, server.Options{}, func(t *testing.T, h *testServer) {
		h.want(404, "GET", "/v1/semaphores/x", ``)
		h.want(404, "DELETE", "/v1/semaphores/x", ``)
		h.want(404, "DELETE", "/v1/semaphores/x/limit", ``)
		h.want(404, "POST", "/v1/semaphores/x/pause", ``)
		h.want(404, "POST", "/v1/semaphores/x/unpause", ``)
		h.want(204, "PUT", "/v1/semaphores/x/limit", `{"limit":2}`)
		permit := h.want(200, "PUT", "/v1/semaphores/x/permits/a", `{"limit":1}`).field("permit").(string)
		h.want(409, "DELETE", "/v1/semaphores/x", ``)
		h.want(204, "POST", "/v1/semaphores/x/pause", ``)
		paused := h.want(423, "PUT", "/v1/semaphores/x/permits/b", `{"limit":1}`)
		if paused.header.Get("Retry-After") == "" {
			t.Error("no Retry-After")
		}
		h.want(423, "PUT", "/v1/semaphores/x/permits/b", `{"limit":1,"wait_seconds":0.05}`)
		if show := h.want(200, "GET", "/v1/semaphores/x", ``); show.field("paused") != true || show.field("pinned") != true {
			t.Errorf("%s", show.body)
		}
		h.want(204, "POST", "/v1/semaphores/x/unpause", ``)
		h.want(200, "PUT", "/v1/semaphores/x/permits/b", `{"limit":1}`)
		h.want(204, "POST", "/v1/semaphores/x/holders/"+permit+"/revoke", ``)
		h.want(410, "POST", "/v1/semaphores/x/permits/a/renew", ``)
		h.want(204, "DELETE", "/v1/semaphores/x/holders/"+permit, ``)
		h.want(410, "DELETE", "/v1/semaphores/x/holders/"+permit, ``)
		h.want(410, "POST", "/v1/semaphores/x/holders/"+permit+"/revoke", ``)
		h.want(404, "POST", "/v1/semaphores/x/holders/nonsense/revoke", ``)
		h.want(204, "DELETE", "/v1/semaphores/x/permits/b", ``)
		h.want(204, "DELETE", "/v1/semaphores/x/limit", ``)
		h.want(204, "DELETE", "/v1/semaphores/x", ``)
		h.want(404, "POST", "/v1/semaphores/new/pause", ``)
		h.want(204, "PUT", "/v1/semaphores/new/limit", `{"limit":3}`)
		h.want(204, "POST", "/v1/semaphores/new/pause", ``)
		h.want(204, "POST", "/v1/semaphores/new/unpause", ``)
		var whats []string
		for line := range strings.Lines(h.audit.String()) {
			var a access.Record
			expect.OK(t, json.Unmarshal([]byte(line), &a))
			if a.Who != "local" || a.Time.IsZero() || a.From == "" {
				t.Errorf("%s", line)
			}
			whats = append(whats, a.What+" "+a.Name+" "+a.Result)
		}
		want := "remove x gone,unset-limit x gone,pause x gone,unpause x gone,limit x done,remove x in-use,pause x done,unpause x done,revoke x done," +
			"release x done,release x gone,revoke x gone,unset-limit x done,remove x done,pause new gone,limit new done,pause new done,unpause new done"
		if got := strings.Join(whats, ","); got != want {
			t.Errorf("the audit log has\n%s; want\n%s", got, want)
		}
	})
}

func TestListIsPaged(t *testing.T) {
	virtual(t, server.Options{}, func(t *testing.T, h *testServer) {
		for _, name := range []string{"b1", "a", "b2", "b3", "c"} {
			h.want(204, "PUT", "/v1/semaphores/"+name+"/limit", `{"limit":1}`)
		}
		var names []string
		after := ""
		for {
			a := h.want(200, "GET", "/v1/semaphores?prefix=b&max=2&after="+after, ``)
			for _, s := range a.field("semaphores").([]any) {
				names = append(names, at(s, "name").(string))
			}
			if after = a.field("next").(string); after == "" {
				break
			}
		}
		if !slices.Equal(names, []string{"b1", "b2", "b3"}) {
			t.Errorf("%v", names)
		}
		if a := h.want(200, "GET", "/v1/semaphores?prefix=nobody", ``); len(a.field("semaphores").([]any)) != 0 {
			t.Errorf("%s", a.body)
		}
		h.want(400, "GET", "/v1/semaphores?max=0", ``)
		h.want(400, "GET", "/v1/semaphores?max=x", ``)
	})
}

func TestOddNames(t *testing.T) {
	virtual(t, server.Options{}, func(t *testing.T, h *testServer) {
		for _, name := range []string{"a/b", "../../etc/passwd", "a?b#c", "a%2Fb", "日本 語", "{name}", "*", strings.Repeat("é", 127)} {
			path := "/v1/semaphores/" + url.PathEscape(name)
			h.want(200, "PUT", path+"/permits/"+url.PathEscape("a/../b"), `{"limit":1}`)
			a := h.want(200, "GET", path, ``)
			if a.field("name") != name || h.state(name).Used != 1 {
				t.Errorf("%q: %s", name, a.body)
			}
			h.want(204, "DELETE", path+"/permits/"+url.PathEscape("a/../b"), ``)
		}
		for _, name := range []string{strings.Repeat("x", 256), "a\nb", "\xff", "a\u2028b"} {
			h.want(400, "PUT", "/v1/semaphores/"+url.PathEscape(name)+"/permits/a", `{"limit":1}`)
		}
		for _, id := range []string{"%20", "%C2%A0", "a%E2%80%AEb", "a%E2%81%A6b"} { // they cannot be seen, or look like others
			h.want(400, "PUT", "/v1/semaphores/x/permits/"+id, `{"limit":1}`)
		}
		h.want(200, "PUT", "/v1/semaphores/x/permits/a%20b", `{"limit":1}`)
		if names, err := h.engine.List(context.Background()); err != nil || slices.Contains(names, "passwd") {
			t.Errorf("%v, %v", names, err)
		}
	})
}

func TestHoldLivesAsLongAsItsResponse(t *testing.T) {
	virtual(t, server.Options{}, func(t *testing.T, h *testServer) {
		start := func() (*bufio.Scanner, context.CancelFunc) {
			ctx, cancel := context.WithCancel(context.Background())
			w := h.stream(ctx, "POST", "/v1/semaphores/x/hold", `{"limit":1,"wait_seconds":60,"lease_seconds":0.3}`)
			t.Cleanup(cancel)
			return bufio.NewScanner(w.Body), cancel
		}
		next := func(lines *bufio.Scanner) map[string]any {
			t.Helper()
			if !lines.Scan() {
				t.Fatal(lines.Err())
			}
			h.spec.check(t, &http.Request{Method: "POST", URL: &url.URL{Path: "/v1/semaphores/x/hold"}},
				answer{200, http.Header{"Content-Type": {"application/x-ndjson"}}, lines.Bytes()})
			var v map[string]any
			expect.OK(t, json.Unmarshal(lines.Bytes(), &v))
			return v
		}
		first, end := start()
		granted := next(first)
		if granted["event"] != "granted" {
			t.Fatalf("%v", granted)
		}
		for range 5 { // beyond the first lease
			if v := next(first); v["event"] != "held" || v["token"] != granted["token"] {
				t.Fatalf("%v", v)
			}
		}
		second, _ := start()
		if v := next(second); v["event"] != "waiting" || v["ahead"] != 0.0 {
			t.Fatalf("%v", v)
		}
		end()
		got := next(second)
		for got["event"] == "waiting" {
			got = next(second)
		}
		if got["event"] != "granted" {
			t.Fatalf("%v", got)
		}
		h.want(429, "POST", "/v1/semaphores/x/hold", `{"limit":1}`)
		h.want(204, "POST", "/v1/semaphores/x/holders/"+got["permit"].(string)+"/revoke", ``)
		for got["event"] != "lost" {
			got = next(second)
		}
		if !strings.Contains(got["reason"].(string), "revoked") {
			t.Errorf("%v", got)
		}
		expect.Until(h, "the release of the revoked permit", func() bool { return h.state("x").Used == 0 })
	})
}

func TestCloseAnswersThoseWhoWait(t *testing.T) {
	virtual(t, server.Options{}, func(t *testing.T, h *testServer) {
		h.want(200, "PUT", "/v1/semaphores/x/permits/a", `{"limit":1}`)
		held := make(chan string, 1)
		go func() {
			a, err := h.try(context.Background(), "POST", "/v1/semaphores/held/hold", `{"limit":1}`)
			held <- fmt.Sprint(string(a.body), err)
		}()
		var all sync.WaitGroup
		for i := range 5 {
			all.Go(func() {
				a, err := h.try(context.Background(), "PUT", fmt.Sprintf("/v1/semaphores/x/permits/w%d", i), `{"limit":1,"wait_seconds":60}`)
				if err != nil || a.status != 503 || a.header.Get("Retry-After") == "" {
					t.Errorf("%d %s %v", a.status, a.body, err)
				}
			})
		}
		expect.Until(h, "five waiters and one holder", func() bool { return len(h.state("x").Waiters) == 5 && h.state("held").Used == 1 })
		h.server.Close()
		all.Wait()
		expect.Has(t, <-held, `"lost"`)
		if st := h.state("x"); st.Used != 1 || len(st.Waiters) != 5 {
			t.Errorf("want the caller's own permit, and the tickets of callers that chose ids: %+v", st)
		}
		if st := h.state("held"); st.Used != 0 {
			t.Errorf("a permit of hold after the end of its response: %+v", st)
		}
		h.want(503, "GET", "/v1/semaphores", ``)
		h.want(503, "GET", "/readyz", ``)
		h.want(200, "GET", "/healthz", ``)
	})
}

func TestEvents(t *testing.T) {
	virtual(t, server.Options{}, func(t *testing.T, h *testServer) {
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		lines := bufio.NewScanner(h.stream(ctx, "GET", "/v1/events?name=x", "").Body)
		next := func(kind string) map[string]any {
			t.Helper()
			for lines.Scan() {
				if lines.Text() != "event: "+kind {
					continue
				}
				lines.Scan()
				var v map[string]any
				expect.OK(t, json.Unmarshal([]byte(strings.TrimPrefix(lines.Text(), "data: ")), &v))
				return v
			}
			t.Fatalf("no event %s: %v", kind, lines.Err())
			return nil
		}
		next("began")
		h.want(200, "PUT", "/v1/semaphores/x/permits/a", `{"limit":1,"label":"me"}`)
		if v := next("granted"); v["label"] != "me" || v["name"] != "x" {
			t.Errorf("%v", v)
		}
		h.want(204, "POST", "/v1/semaphores/x/pause", ``)
		next("paused")
		h.want(204, "DELETE", "/v1/semaphores/x/permits/a", ``)
		if v := next("released"); v["key"] != nil {
			t.Errorf("of no key: %v", v)
		}
		h.want(204, "POST", "/v1/semaphores/x/unpause", ``)
		h.want(200, "PUT", "/v1/semaphores/x/permits/b", `{"limit":1,"key":"acme"}`)
		if v := next("granted"); v["key"] != "acme" {
			t.Errorf("%v", v)
		}
		h.want(204, "PUT", "/v1/semaphores/x/limit", `{"limit":2}`)
		next("limit")
		h.want(200, "PUT", "/v1/semaphores/x/permits/c", `{"limit":1,"key":["acme","alice"]}`)
		if v := next("granted"); fmt.Sprint(v["key"]) != "[acme alice]" {
			t.Errorf("%v", v)
		}
	})
}

// The caller's id of a permit is shown with the permit everywhere. A search for it finds the
// permits in all semaphores that the token may see.
func TestTheCallersID(t *testing.T) {
	virtual(t, server.Options{Tokens: tokens(t)}, func(t *testing.T, h *testServer) {
		h.token = "worker.secret-of-the-worker"
		h.want(200, "PUT", "/v1/semaphores/x/permits/job-17", `{"limit":1,"label":"nightly"}`)
		waiting := make(chan answer, 1)
		go func() { waiting <- h.do("PUT", "/v1/semaphores/x/permits/job-18", `{"limit":1,"wait_seconds":60}`) }()
		h.waiting("x", 1)
		h.want(200, "PUT", "/v1/semaphores/job-a/permits/job-17", `{"limit":1}`)
		for i := range 3 {
			h.want(200, "PUT", fmt.Sprintf("/v1/semaphores/job-b/permits/job-%d", i), `{"limit":3}`)
		}
		some := h.want(200, "GET", "/v1/semaphores/job-b?max=1", "")
		if n := len(some.field("holders").([]any)); n != 1 || some.field("more_holders") != 2.0 || some.field("more_waiters") != nil {
			t.Errorf("%s", some.body)
		}
		shown := h.want(200, "GET", "/v1/semaphores/x", "")
		if shown.field("more_holders") != nil {
			t.Errorf("%s", shown.body)
		}
		if at(shown.field("holders").([]any)[0], "caller") != "job-17" || at(shown.field("waiters").([]any)[0], "caller") != "job-18" {
			t.Errorf("%s", shown.body)
		}
		find := func(token, query string, want ...string) (permits []string) {
			t.Helper()
			h.token = token
			a := h.want(200, "GET", "/v1/find?"+query, "")
			got := []string{}
			for _, list := range []string{"holders", "waiters"} {
				for _, one := range a.field(list).([]any) {
					got = append(got, at(one, "name").(string)+" "+at(one, "caller").(string))
					permits = append(permits, at(one, "permit").(string))
				}
			}
			if !slices.Equal(got, want) {
				t.Errorf("%s finds %q, want %q", query, got, want)
			}
			return permits
		}
		const boss, other = "boss.secret-of-the-boss", "other.secret-of-the-other1"
		permits := find(boss, "of=job-17", "job-a job-17", "x job-17")
		find(boss, "of=job-17&prefix=x", "x job-17")
		find(boss, "of=night", "x job-17")
		find(boss, "of=job-18", "x job-18")
		find(boss, "of="+permits[1], "job-a job-17", "x job-17") // the permit's id is the same in each semaphore
		find(boss, "of=nobody")
		find(other, "of=job-17", "job-a job-17")
		find(other, "of=job-17&prefix=x")
		h.token = boss
		h.want(400, "GET", "/v1/find", "")
		h.want(204, "POST", "/v1/semaphores/x/holders/"+permits[1]+"/revoke", "")
		h.want(204, "DELETE", "/v1/semaphores/x/holders/"+permits[1], "")
		if n := strings.Count(h.audit.String(), `"caller":"job-17"`); n != 2 {
			t.Errorf("%d lines name the caller:\n%s", n, h.audit.String())
		}
		if a := <-waiting; a.status != 200 {
			t.Errorf("%s", a.body)
		}
	})
}

// Callers name the key of their permits, and operators set the rules of keys.
func TestKeys(t *testing.T) {
	virtual(t, server.Options{}, func(t *testing.T, h *testServer) {
		const x = "/v1/semaphores/x"
		held := h.want(200, "PUT", x+"/permits/1", `{"limit":4,"caps":[1],"key":"acme"}`)
		if held.field("key") != "acme" {
			t.Errorf("%s", held.body)
		}
		h.want(200, "PUT", x+"/permits/1", `{"limit":4,"caps":[1],"key":"acme"}`)
		h.want(409, "PUT", x+"/permits/1", `{"limit":4,"caps":[1],"key":"beta"}`)
		h.want(429, "PUT", x+"/permits/2", `{"limit":4,"caps":[1],"key":"acme"}`)
		h.want(200, "PUT", x+"/permits/3", `{"limit":4,"caps":[1],"key":"beta"}`)
		expect.Has(t, h.want(409, "PUT", x+"/permits/4", `{"limit":4,"caps":[1],"key":"beta","weight":2}`).body, `above the 1 that key \"beta\" may hold`, `"at":{"key":"beta","cap":1}`)
		h.want(204, "PUT", x+"/keys/a%2Fb%20c", `{"cap":3,"share":300}`)
		h.want(204, "PUT", x+"/keys/acme", `{"cap":2}`)
		h.want(200, "PUT", x+"/permits/2", `{"limit":4,"caps":[1],"key":"acme"}`)
		show := string(h.want(200, "GET", x, ``).body)
		expect.Has(t, show,
			`"caps":[1]`, `{"key":"a/b c","held":0,"waiting":0,"oldest_seconds":0,"cap":3,"share":300,"ruled":true,"full":false,"before":0,"why":""}`,
			`"key":"acme","held":2,`, `"key":"beta","takes":{},"weight":1`,
		)
		h.want(204, "DELETE", x+"/keys/acme", ``)
		h.want(204, "DELETE", x+"/keys/nobody", ``)
		h.want(404, "DELETE", "/v1/semaphores/y/keys/acme", ``)
		h.want(404, "PUT", "/v1/semaphores/y/keys/acme", `{"cap":1}`)
		h.want(204, "PUT", x+"/limit", `{"limit":5,"caps":[]}`)
		h.want(200, "PUT", x+"/permits/5", `{"limit":4,"caps":[1],"key":"beta","weight":2}`)
		h.want(204, "PUT", x+"/limit", `{"limit":6}`)
		for _, body := range []string{`{"limit":1,"priority_seconds":-1}`, `{"limit":1,"priority_seconds":86401}`} {
			h.want(400, "PUT", x+"/permits/6", body)
		}
		for _, body := range []string{`{}`, `{"cap":-1}`, `{"cap":0,"share":1}`, `{"share":0}`, `{"share":1001}`, `{"caps":1}`} {
			h.want(400, "PUT", x+"/keys/acme", body)
		}
		said := ""
		for line := range strings.Lines(h.audit.String()) {
			var a access.Record
			expect.OK(t, json.Unmarshal([]byte(line), &a))
			if a.Result == "done" {
				said += fmt.Sprint(a.What, " ", a.Key, " ", a.Cap, " ", a.Share, "; ")
			}
		}
		if want := "set-key a%2Fb c 3 300; set-key acme 2 0; unset-key acme 0 0; unset-key nobody 0 0; limit  0 0; limit  0 0; "; said != want {
			t.Errorf("audit: %s", said)
		}
	})
}

// A key at its cap blocks those below it, and nobody else.
func TestKeysOfTwoNames(t *testing.T) {
	virtual(t, server.Options{}, func(t *testing.T, h *testServer) {
		const x = "/v1/semaphores/x"
		wish := func(key, more string) string { return `{"limit":9,"caps":[3,2],"key":` + key + more + `}` }
		const alice, bob, beta, wait = `["acme","alice"]`, `["acme","bob"]`, `["beta"]`, `,"wait_seconds":600`
		got := make(chan string, 2)
		var callers sync.WaitGroup
		later := func(id, key string) {
			callers.Go(func() {
				h.want(200, "PUT", x+"/permits/"+id, wish(key, wait))
				got <- id
			})
			h.settle()
		}
		held := h.want(200, "PUT", x+"/permits/alice1", wish(alice, ""))
		expect.Has(t, held.body, `"key":["acme","alice"]`)
		h.want(409, "PUT", x+"/permits/alice1", wish(bob, ""))
		h.want(200, "PUT", x+"/permits/alice2", wish(alice, ""))
		h.want(429, "PUT", x+"/permits/alice3", wish(alice, ""))
		later("alice3", alice)
		h.want(200, "PUT", x+"/permits/bob1", wish(bob, "")) // alice is at her cap, and waits for herself alone
		h.want(429, "PUT", x+"/permits/bob2", wish(bob, "")) // acme is at its cap
		h.want(429, "PUT", x+"/permits/acme", wish(`"acme"`, ""))
		later("bob2", bob)
		h.want(200, "PUT", x+"/permits/beta1", wish(beta, ""))
		h.want(200, "PUT", x+"/permits/beta2", wish(`["beta","carol"]`, ""))
		h.want(200, "PUT", x+"/permits/none", wish(`""`, ""))
		show := string(h.want(200, "GET", x, ``).body)
		expect.Has(t, show,
			`"caps":[3,2]`, `{"key":"acme","held":3,"waiting":2,`, `{"key":["acme","alice"],"held":2,"waiting":1,`, `{"key":["acme","bob"],"held":1,"waiting":1,`,
			`{"key":"beta","held":2,`, `{"key":["beta",""],"held":1,`,
		)
		if found := h.want(200, "GET", "/v1/find?of=acme/bob", ``); len(found.field("holders").([]any)) != 1 || len(found.field("waiters").([]any)) != 1 {
			t.Errorf("%s", found.body)
		}
		h.want(204, "DELETE", x+"/permits/alice1", ``)
		first := <-got
		h.want(204, "DELETE", x+"/permits/bob1", ``)
		if second := <-got; first == second {
			t.Errorf("%s was served twice", first)
		}
		callers.Wait()

		for _, c := range []struct{ key, weight, at string }{
			{alice, "3", `"at":{"key":["acme","alice"],"cap":2}`}, {alice, "4", `"at":{"key":["acme","alice"],"cap":2}`},
			{beta, "4", `"at":{"key":"beta","cap":3}`}, {`["acme","dave"]`, "10", `"at":{"key":["acme","dave"],"cap":2}`},
		} {
			if heavy := h.want(409, "PUT", x+"/permits/heavy", wish(c.key, `,"weight":`+c.weight)); !strings.Contains(string(heavy.body), c.at) {
				t.Errorf("%s: %s; want %s", c.key, heavy.body, c.at)
			}
		}
		h.want(204, "PUT", x+"/keys/acme/alice", `{"cap":7}`)
		expect.Has(t, h.want(409, "PUT", x+"/permits/heavy", wish(alice, `,"weight":4`)).body, `"at":{"key":"acme","cap":3}`)
		h.want(204, "PUT", x+"/limit", `{"limit":9,"caps":[0,5]}`)
		expect.Has(t, h.want(200, "GET", x, ``).body, `"caps":[0,5]`)
		if heavy := h.want(409, "PUT", x+"/permits/heavy", wish(`"beta"`, `,"weight":10`)); heavy.field("at") != nil {
			t.Errorf("%s", heavy.body)
		}
	})
}

// Permits take some of pools beside the limit, all of it at once. Operators change pools and end them.
func TestPools(t *testing.T) {
	virtual(t, server.Options{}, func(t *testing.T, h *testServer) {
		const x = "/v1/semaphores/x"
		wish := func(more string) string { return `{"limit":9,"pools":{"licence":2,"gpu":2.0}` + more + `}` }
		has := func(a answer, want ...string) {
			t.Helper()
			expect.Has(t, a.body, want...)
		}
		const both = `,"take":{"licence":1,"gpu":2},"key":["acme","alice"]`
		has(h.want(200, "PUT", x+"/permits/1", wish(both)), `"key":["acme","alice"],"takes":{"gpu":2,"licence":1}`)
		h.want(200, "PUT", x+"/permits/1", wish(both))
		has(h.want(409, "PUT", x+"/permits/1", wish(`,"take":{"gpu":1},"key":["acme","alice"]`)), `"type":"urn:sema:another"`, `of key \"acme/alice\", with gpu=2,licence=1 of pools`)
		has(h.want(200, "PUT", x+"/permits/2", wish(``)), `"key":"","takes":{}`)
		has(h.want(200, "POST", x+"/permits/1/renew", ``), `"takes":{"gpu":2,"licence":1}`)
		has(h.want(429, "PUT", x+"/permits/3", wish(`,"take":{"gpu":1}`)), `"type":"urn:sema:unavailable"`)
		has(h.want(200, "PUT", x+"/permits/4", wish(`,"take":{"licence":1}`)), `"takes":{"licence":1}`)
		got := make(chan answer)
		go func() { got <- h.want(200, "PUT", x+"/permits/3", wish(`,"take":{"gpu":1},"wait_seconds":600`)) }()
		h.settle()
		show := h.want(200, "GET", x, ``)
		has(show, `"pools":[{"pool":"gpu","limit":2,"used":2,"waiting":1},{"pool":"licence","limit":2,"used":2,"waiting":0}]`,
			`"key":["acme","alice"],"takes":{"gpu":2,"licence":1}`, `"takes":{},`, `"position":1,"permit":"`, `"takes":{"gpu":1}`)
		has(h.want(200, "GET", "/v1/find?of=acme", ``), `"takes":{"gpu":2,"licence":1}`)

		for _, c := range []struct {
			take, says string
			status     int
		}{
			{`{"licence":1,"gpu":3}`, `3 of pool \"gpu\" is above the 2 that there are`, 409}, {`{"licence":1,"gpu":3}`, `"at":{"pool":"gpu","limit":2}`, 409},
			{`{"gpu":1,"gpus":1}`, `"at":{"pool":"gpus"}`, 404}, {`{"gpu":1,"gpus":1}`, `"detail":"\"x\" has no pool \"gpus\""`, 404},
		} {
			a := h.want(c.status, "PUT", x+"/permits/never", wish(`,"wait_seconds":60,"take":`+c.take))
			has(a, c.says, `"type":"urn:sema:`+map[int]string{404: "no-pool", 409: "too-heavy"}[c.status]+`"`, `"notExecuted":true`)
		}
		h.want(204, "PUT", x+"/limit", `{"limit":9,"pools":{"gpu":4,"new":1}}`)
		has(<-got, `"takes":{"gpu":1}`)
		h.want(204, "PUT", x+"/limit", `{"limit":9,"pools":{"gpu":1,"licence":0}}`)
		has(h.want(200, "GET", x, ``), `"pools":[{"pool":"gpu","limit":1,"used":3,"waiting":0},{"pool":"licence","limit":0,"used":2,"waiting":0},{"pool":"new","limit":1,"used":0,"waiting":0}]`)
		has(h.want(404, "PUT", x+"/permits/5", wish(`,"take":{"licence":1}`)), `"at":{"pool":"licence"}`)
		h.want(204, "PUT", x+"/limit", `{"limit":9,"pools":{}}`)
		var more []string
		for i := range engine.MaxPools {
			more = append(more, fmt.Sprintf(`"p%d":1`, i))
		}
		has(h.want(400, "PUT", x+"/limit", `{"limit":7,"pools":{`+strings.Join(more, ",")+`}}`), `"type":"urn:sema:argument"`, "at most 16 pools")
		has(h.want(200, "GET", x, ``), `"limit":9`)
		expect.Has(t, h.audit.String(),
			`"what":"limit","name":"x","limit":9,"pools":{"gpu":4,"new":1},"result":"done"`, `"pools":{"gpu":1,"licence":0},"result":"done"`,
			`"what":"limit","name":"x","limit":9,"result":"done"`, `"result":"pools \"p0=1,p1=1`,
		)
	})
}

// While callers wait for 16 combinations of pools, those of another one are told to come back.
func TestTooManySetsOfPools(t *testing.T) {
	virtual(t, server.Options{}, func(t *testing.T, h *testServer) {
		const x = "/v1/semaphores/x"
		names := []string{"a", "b", "c", "d", "e"}
		wish := func(set int) string {
			var take []string
			for i, name := range names {
				if set&(1<<i) != 0 {
					take = append(take, fmt.Sprintf("%q:1", name))
				}
			}
			return `{"limit":1,"wait_seconds":600,"pools":{"a":1,"b":1,"c":1,"d":1,"e":1},"take":{` + strings.Join(take, ",") + `}}`
		}
		h.want(200, "PUT", x+"/permits/gate", wish(0))
		var all sync.WaitGroup
		for set := 1; set <= engine.MaxPools; set++ {
			all.Go(func() {
				id := fmt.Sprint(x, "/permits/", set)
				h.want(200, "PUT", id, wish(set))
				h.want(204, "DELETE", id, ``)
			})
		}
		h.settle()
		a := h.want(429, "PUT", x+"/permits/17", wish(17))
		if a.field("type") != "urn:sema:too-many-sets" || a.header.Get("Retry-After") != "1" || a.field("notExecuted") != true {
			t.Errorf("%v %s", a.header, a.body)
		}
		h.want(429, "POST", x+"/hold", wish(18))
		h.want(204, "DELETE", x+"/permits/gate", ``)
		all.Wait()
		h.want(200, "PUT", x+"/permits/17", wish(17))
	})
}

// The path of a rule has a segment for each name of its key.
func TestRulesOfKeysOfSeveralNames(t *testing.T) {
	virtual(t, server.Options{}, func(t *testing.T, h *testServer) {
		const x = "/v1/semaphores/x"
		h.want(204, "PUT", x+"/limit", `{"limit":20,"caps":[9,4]}`)
		h.want(204, "PUT", x+"/limit", `{"limit":21}`)
		h.want(204, "PUT", x+"/keys/acme/a%2Fb%20c", `{"cap":6,"share":300}`)
		h.want(204, "PUT", x+"/keys/acme/alice/gpt", `{"cap":1}`)
		show := string(h.want(200, "GET", x, ``).body)
		expect.Has(t, show, `"limit":21`, `"caps":[9,4]`, `{"key":["acme","a/b c"],"held":0,"waiting":0,"oldest_seconds":0,"cap":6,"share":300,"ruled":true,`, `{"key":["acme","alice","gpt"],`)
		h.want(204, "DELETE", x+"/keys/acme/alice/gpt", ``)
		h.want(204, "DELETE", x+"/keys/acme/a%2Fb%20c", ``)
		h.want(204, "PUT", x+"/limit", `{"limit":20,"caps":[7]}`)
		expect.Has(t, h.want(200, "GET", x, ``).body, `"caps":[7],"pools":[],"keys":[]`)
		long := strings.Repeat("n", 127)
		h.want(204, "PUT", x+"/keys/"+long+"/"+long, `{"share":1}`)
		lines := h.audit.String()
		for _, path := range []string{
			"/keys/a%01b", "/keys/acme/a%00", "/keys/acme/alice%01", "/keys/acme/%01", "/keys/acme/%FF", "/keys/a/b/%E2%80%A8",
			"/keys/" + long + "/" + long + "/n", "/keys/" + strings.Repeat("n", 256),
		} {
			h.want(400, "PUT", x+path, `{"cap":1}`)
			h.want(400, "DELETE", x+path, ``)
		}
		for _, path := range []string{"/keys/", "/keys", "/keys/acme/", "/keys/a/b/c/", "/keys/a/b/c/d"} {
			h.want(404, "PUT", x+path, `{"cap":1}`)
			h.want(404, "DELETE", x+path, ``)
		}
		if now := h.audit.String(); now != lines {
			t.Errorf("lines of what was refused unseen: %s", now[len(lines):])
		}
		expect.Has(t, lines,
			`"what":"limit","name":"x","limit":20,"caps":[9,4,0],"result":"done"`, `"limit":21,"result"`, `"limit":20,"caps":[7,0,0],"result":"done"`,
			`"what":"set-key","name":"x","key":["acme","a/b c"],"cap":6,"share":300,"result":"done"`, `"what":"unset-key","name":"x","key":["acme","alice","gpt"],"result":"done"`,
		)
	})
}

// A caller with priority is served before an earlier caller of its key.
func TestPriority(t *testing.T) {
	virtual(t, server.Options{}, func(t *testing.T, h *testServer) {
		h.want(200, "PUT", "/v1/semaphores/x/permits/held", `{"limit":1,"key":"acme"}`)
		first := make(chan string, 2)
		var callers sync.WaitGroup
		for _, c := range []struct{ id, more string }{{"batch", ""}, {"quick", `,"priority_seconds":60`}} {
			callers.Go(func() {
				h.want(200, "PUT", "/v1/semaphores/x/permits/"+c.id, `{"limit":1,"key":"acme","wait_seconds":600`+c.more+`}`)
				first <- c.id
				h.want(204, "DELETE", "/v1/semaphores/x/permits/"+c.id, ``)
			})
			time.Sleep(time.Second)
		}
		h.want(204, "DELETE", "/v1/semaphores/x/permits/held", ``)
		if a, b := <-first, <-first; a != "quick" || b != "batch" {
			t.Errorf("%s, then %s", a, b)
		}
		callers.Wait()
	})
}

// What callers say of a semaphore that exists counts as that of a new deployment, once. Callers of an older one, which
// ask on, do not bring theirs back, at either server; an operator's limit stays; and each answer says what holds.
func TestTheNewestConfigurationHolds(t *testing.T) {
	virtual(t, server.Options{}, func(t *testing.T, h *testServer) {
		other := newVirtual(t, h.engine, server.Options{})
		ask := func(s *testServer, status int, says, want string) {
			t.Helper()
			if a := s.want(status, "POST", "/v1/semaphores/x/permits", says); !strings.Contains(string(a.body), want) {
				t.Errorf("%s: no %s in %s", says, want, a.body)
			}
		}
		const old, later = `{"limit":20,"caps":[9],"pools":{"gpu":2}}`, `{"limit":30,"caps":[0,8],"pools":{"licence":4},"take":{"licence":1}}`
		const oldHolds, laterHolds = `"limit":20,"caps":[9],"pools":{"gpu":2}`, `"limit":30,"caps":[0,8],"pools":{"licence":4}`
		ask(h, 200, old, oldHolds)
		ask(other, 200, old, oldHolds)
		ask(h, 200, later, laterHolds)
		ask(h, 200, old, laterHolds)
		ask(other, 200, old, laterHolds)
		ask(other, 200, `{"limit":5,"on_conflict":"stored"}`, laterHolds)
		ask(h, 409, `{"limit":5,"on_conflict":"strict"}`, `"type":"urn:sema:limit-differs"`)
		ask(h, 409, `{"limit":5,"on_conflict":"strict"}`, `it has limit 30, caps`)
		ask(h, 400, `{"limit":5,"on_conflict":"adopt"}`, `newest, stored or strict`)
		h.want(204, "PUT", "/v1/semaphores/x/limit", `{"limit":40}`)
		ask(h, 200, `{"limit":50}`, `"limit":40,"caps":[0,8],"pools":{"licence":4}`)
		h.want(204, "DELETE", "/v1/semaphores/x/limit", ``)
		w := h.stream(t.Context(), "POST", "/v1/semaphores/x/hold", `{"limit":60,"pools":{}}`)
		if lines := bufio.NewScanner(w.Body); !lines.Scan() || !strings.Contains(lines.Text(), `"limit":60,"caps":[0,8],"pools":{}`) {
			t.Errorf("hold: %s", lines.Text())
		}
	})
}

// The description takes what the server takes. A key with a slash is several names to the command and the dashboard: so a
// text may not have one.
func TestTheDescriptionTakesWhatTheServerTakes(t *testing.T) {
	described, err := readSpec()
	expect.OK(t, err)
	virtual(t, server.Options{}, func(t *testing.T, h *testServer) {
		a := h.want(400, "POST", "/v1/semaphores/x/permits", `{"limit":90,"key":"acme/alice"}`)
		expect.Has(t, a.body, `"type":"urn:sema:argument"`, `[\"acme\",\"alice\"]`, `[\"acme/alice\"]`)
		right := []string{`"key":["acme/alice"]`, `"key":"acme"`, `"key":""`, `"pools":{"a":"1/1ms","b":"86400000/86400000ms","c":"7/9999s","d":"7/86400s","e":"2000000000/1440m","f":"7+2147483647/24h","g":"2147480000+1/19h"}`}
		wrong := []string{`"key":"acme/alice"`, `"key":"/"`}
		for rate := range strings.FieldsSeq("2147483648/1s 7+2147483650/1m 2150000000/1h 3000000000/1m 86400001/86400001ms 7/86401s 7/1441m 7/25h 7/0h 0/1m 7+0/1m") {
			wrong = append(wrong, `"pools":{"rpm":"`+rate+`"}`)
		}
		for status, fields := range map[int][]string{200: right, 400: wrong} {
			for _, field := range fields {
				body := `{"limit":90,` + field + `}`
				h.want(status, "POST", "/v1/semaphores/x/permits", body)
				var v any
				expect.OK(t, json.Unmarshal([]byte(body), &v))
				if err := described.schemas["Acquire"].Validate(v); (err == nil) != (status == 200) {
					t.Errorf("%d is right for %s; the description: %v", status, body, err)
				}
			}
		}
	})
}

// An act on a page leaves the same audit record as the act by way of the API: with the values before, and the permit's owner.
func TestPagesAndTheAPIRecordTheSame(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := memengine.New()
		var pages []access.Record
		d := newDashboard(t, e, dashboard.Options{Audit: func(a access.Record) { pages = append(pages, a) }})
		h := newVirtual(t, e, server.Options{Dashboard: d})
		for _, name := range []string{"api", "page"} {
			for _, id := range []string{"one", "two"} {
				h.want(200, "PUT", "/v1/semaphores/"+name+"/permits/"+id, `{"limit":20,"caps":[9],"pools":{"gpu":2},"key":["acme","alice"]}`)
			}
		}
		permits, same := h.state("api").Holders, h.state("page").Holders
		for _, act := range []struct {
			what, method, path, body string
			form                     url.Values
		}{
			{"set-key", "PUT", "/keys/acme", `{"cap":7,"share":300}`, url.Values{"key": {"acme"}, "cap": {"7"}, "share": {"300"}}},
			{"unset-key", "DELETE", "/keys/acme", ``, url.Values{"key": {"acme"}}},
			{"limit", "PUT", "/limit", `{"limit":30,"caps":[8]}`, url.Values{"limit": {"30"}, "caps": {"8"}}},
			{"limit", "PUT", "/limit", `{"limit":30,"pools":{"gpu":3}}`, url.Values{"pool": {"gpu"}, "amount": {"3"}}},
			{"unset-limit", "DELETE", "/limit", ``, nil},
			{"pause", "POST", "/pause", ``, nil},
			{"unpause", "POST", "/unpause", ``, nil},
			{"revoke", "POST", "/holders/" + permits[0].ID + "/revoke", ``, url.Values{"permit": {permits[0].ID}}},
			{"release", "DELETE", "/holders/" + permits[1].ID, ``, url.Values{"permit": {permits[1].ID}}},
		} {
			before := len(h.audit.String())
			h.want(204, act.method, "/v1/semaphores/api"+act.path, act.body)
			form := url.Values{"do": {act.what}, "name": {"page"}}
			maps.Copy(form, act.form)
			for i, of := range permits {
				if of.ID == form.Get("permit") {
					form.Set("permit", same[i].ID)
				}
			}
			h.page(303, "POST", "/act", form)
			var api access.Record
			expect.OK(t, json.Unmarshal([]byte(h.audit.String()[before:]), &api))
			page := pages[len(pages)-1]
			page.Time, page.From, page.Name, page.Permit, page.Limit = api.Time, api.From, api.Name, api.Permit, cmp.Or(page.Limit, api.Limit)
			if !reflect.DeepEqual(page, api) || page.Result != "done" || act.form != nil && page.Was == nil && page.Key == "" {
				t.Errorf("%s: on a page %+v, by the API %+v", act.what, page, api)
			}
		}
	})
}
