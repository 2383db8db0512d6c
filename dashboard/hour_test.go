package dashboard_test

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"sema"
	"sema/access"
	"sema/dashboard"
	"sema/engine"
	"sema/engines/memengine"
	"sema/internal/fixture/expect"
	"sema/internal/protocol"
)

// kept is a site in virtual time that looks all the time.
func kept(t *testing.T, o dashboard.Options, f func(t *testing.T, s *site)) {
	synctest.Test(t, func(t *testing.T) {
		o.Always = true
		f(t, open(t, o))
	})
}

// named has a caller of a server's API ask for a permit, as its host and under its id.
func (s *site) named(name string, limit int, lease time.Duration, who engine.Client) (release func()) {
	s.t.Helper()
	raw, err := s.engine.Open(name, engine.Client{}, func(protocol.Notification) {})
	expect.OK(s.t, err)
	id := engine.ID{Client: strings.ReplaceAll(who.Caller, "-", "."), Number: 1, Weight: 1}
	number := uint64(0)
	step := func(r protocol.Request) {
		number++
		r.ID = id
		if _, err := raw.Step(s.t.Context(), protocol.Call{Number: number, Requests: []protocol.Request{r}}); err != nil {
			s.t.Fatal(err)
		}
	}
	step(protocol.Request{Kind: protocol.Ask, Limit: limit, Lease: lease, Ticket: lease, Wait: true, Who: &who})
	return func() { step(protocol.Request{Kind: protocol.Release}) }
}

var rowKeys = regexp.MustCompile(`data-key="([^"]*)"`)

func keys(page string) string {
	var list []string
	for _, found := range rowKeys.FindAllStringSubmatch(page, -1) {
		list = append(list, found[1])
	}
	return strings.Join(list, " ")
}

// A semaphore that needs an operator is on top, whatever its name, and says why.
func TestWhatNeedsAttentionComesFirst(t *testing.T) {
	kept(t, dashboard.Options{}, func(t *testing.T, s *site) {
		acquire(t, s.semaphore("a-full", 2, nil), 2)
		acquire(t, s.semaphore("b-fine", 2, nil), 1)
		acquire(t, s.semaphore("x-lowered", 5, nil), 4)
		acquire(t, s.semaphore("y-paused", 5, nil), 1)
		s.named("w-dying", 2, 2*time.Minute, engine.Client{Host: "web-1", Caller: "job-1"})
		busy := s.semaphore("z-slow", 1, nil)
		for range 30 { // what is usual there
			expect.OK(t, acquire(t, busy, 1).Release())
			p := acquire(t, busy, 1)
			time.Sleep(6 * time.Second)
			expect.OK(t, p.Release())
		}
		s.named("w-dying", 2, 2*time.Minute, engine.Client{Host: "web-1", Caller: "job-2"})
		for name, do := range map[string]func(*sema.Operator) error{
			"x-lowered": func(o *sema.Operator) error { return o.Set(t.Context(), sema.Rule{Limit: 3}) },
			"y-paused":  func(o *sema.Operator) error { return o.Pause(t.Context()) },
		} {
			expect.OK(t, do(s.operator(name)))
		}
		acquire(t, busy, 1)
		queue(t, s.engine, "z-slow", "w", 1)
		time.Sleep(95 * time.Second)
		page := s.get(200, "/")
		if got := keys(page); got != "z-slow w-dying x-lowered y-paused a-full b-fine" {
			t.Errorf("in the order %s", got)
		}
		expect.Has(t, page, "waits 1m 35s, usually under 1s", "1 lease about to end", "1 above the limit", ">Paused for 1m 3", `class="fill bad"`)
		if n := strings.Count(page, `warn dot"`) + strings.Count(page, `bad dot"`); n != 4 {
			t.Errorf("%d troubles", n)
		}
		if got := keys(s.get(200, "/?state=attention&sort=name")); got != "w-dying x-lowered y-paused z-slow" {
			t.Errorf("filtered: %s", got)
		}
		for state, want := range map[string]string{"waiting": "z-slow", "full": "z-slow x-lowered a-full", "paused": "y-paused", "idle": "", "nothing": "z-slow w-dying x-lowered y-paused a-full b-fine"} {
			if got := keys(s.get(200, "/?state="+state)); got != want {
				t.Errorf("%s: %s", state, got)
			}
		}
		expect.Has(t, s.get(200, "/semaphore?name=x-lowered"), "1 above the limit")
	})
}

// A job is found in all semaphores, while it is there and when it has gone; and so are
// its host and its label.
func TestAJobIsFound(t *testing.T) {
	seesAll := []string{}
	o := dashboard.Options{Allow: func(r *http.Request) access.Who {
		return access.Who{Right: "read", Prefixes: seesAll}
	}}
	kept(t, o, func(t *testing.T, s *site) {
		release := s.named("etl/x", 1, time.Hour, engine.Client{Host: "web-1", PID: 5, Label: "nightly", Caller: "job-17"})
		s.named("etl/x", 1, time.Hour, engine.Client{Host: "web-2", PID: 6, Label: "daily", Caller: "job-18"})
		acquire(t, s.semaphore("other", 3, nil), 1)
		time.Sleep(10 * time.Second)
		for query, want := range map[string]string{
			"q=JOB-17": "etl/x", "q=job-1": "etl/x", "q=oth": "other", "q=web-2": "etl/x", "q=daily": "etl/x",
			"q=job-18": "etl/x", "q=job-19": "", "q=web-1+daily": "", "q=DAILY++web-2": "etl/x", "q=other+web-1": "",
		} {
			if got := keys(s.get(200, "/?"+query)); got != want {
				t.Errorf("%s: %q, not %q", query, got, want)
			}
		}
		expect.Has(t, s.get(200, "/?q=job-18"), ">job-18 daily<", "waits", ">web-2<", "&amp;at=job.18-1-1#job.18-1-1")
		expect.Has(t, s.get(200, "/?q=web-2"), `href="host?host=web-2"`)
		expect.Has(t, s.get(200, "/semaphore?name=etl%2Fx"), ">job-17 nightly<", ">job-18 daily<", ">web-1<", ">web-2<")
		release()
		time.Sleep(10 * time.Second)
		page := s.get(200, "/?q=job-17")
		expect.Has(t, page, ">job-17 nightly<", "gave it back", `href="semaphore?name=etl%2Fx"`)
		if got := keys(page); got != "" {
			t.Errorf("it holds nothing any more, but %s", got)
		}
		seesAll = append(seesAll, "else/")
		hasNot(t, s.get(200, "/?q=job-17"), ">job-17 nightly<")
	})
}

// A caller that was granted and released between two looks did not give up, and nothing
// went badly.
func TestAQuickGrantIsNoGivingUp(t *testing.T) {
	kept(t, dashboard.Options{}, func(t *testing.T, s *site) {
		first := s.named("x", 1, time.Hour, engine.Client{Caller: "job-17"})
		quick := s.named("x", 1, time.Hour, engine.Client{Caller: "job-18"})
		time.Sleep(12 * time.Second) // the next look is three seconds away
		first()
		quick()
		s.named("x", 1, time.Hour, engine.Client{Caller: "job-19"}) // or the semaphore would be gone
		time.Sleep(12 * time.Second)
		expect.Has(t, s.get(200, "/semaphore?name=x"), "<bdi>job-18</bdi> left the queue after 10s, no permit seen")
		expect.Has(t, s.get(200, "/?q=job-18"), "left the queue, no permit seen")
	})
}

// The page of a semaphore draws the last hour and says what happened, without JavaScript:
// who waited and held, and what operators did, on the page and elsewhere.
func TestTheLastHour(t *testing.T) {
	kept(t, dashboard.Options{Allow: admin}, func(t *testing.T, s *site) {
		time.Sleep(61 * time.Second) // the first rounds find nobody, and the next one comes later
		release := s.named("x", 1, time.Hour, engine.Client{Host: "web-1", Label: "nightly", Caller: "job-17"})
		queue(t, s.engine, "x", "second", 1)
		time.Sleep(10 * time.Minute)
		s.post(303, "/act", form("limit", "x", "limit", "2"))
		s.d.Acted(access.Record{Time: time.Now(), Who: "ci", What: "set-key", Name: "x", Key: "acme", Cap: 5, Result: "done"})
		release()
		time.Sleep(20 * time.Minute)
		page := s.get(200, "/semaphore?name=x")
		expect.Has(t, page, "Use from 00:01 to 00:31 UTC: up to 2 of 2 in use, up to 1 waiting", "half under 17m 04s at most", `data-time="2000-01-01T00:05:00Z">00:05<`,
			"<bdi>job-17 nightly</bdi> holds a permit</li>", "<bdi>job-17 nightly</bdi> has no permit any more, after 10m 00s</li>",
			`<time datetime="2000-01-01T00:01:01Z">00:01:01 UTC</time> <bdi>second</bdi> waits`, "<bdi>second</bdi> holds a permit after a wait of 10m 00s",
			"<bdi>olga</bdi> sets the limit to 2</li>", "</time> the limit is 2</li>", "<bdi>ci</bdi> sets key acme to a cap of 5</li>")
		time.Sleep(time.Hour)
		page = s.get(200, "/semaphore?name=x")
		expect.Has(t, page, "Nothing was seen in the last hour.", "No grant was seen")
		hasNot(t, page, "job-17")
	})
}

// A host died: all that it holds is revoked after one confirmation, a line of the record
// for each, and nothing else is.
func TestAHostThatDied(t *testing.T) {
	var audit []access.Record
	who := access.Who{Right: "admin", Name: "olga", Prefixes: []string{"etl/"}}
	o := dashboard.Options{Allow: func(*http.Request) access.Who { return who }, Audit: func(r access.Record) {
		if r.What != "refused" {
			audit = append(audit, r)
		}
	}}
	kept(t, o, func(t *testing.T, s *site) {
		for i, at := range []string{"etl/a", "etl/a", "etl/b", "secret"} {
			s.named(at, 5, time.Hour, engine.Client{Host: "web-1", Caller: fmt.Sprintf("job-%d", i)})
		}
		s.named("etl/a", 5, time.Hour, engine.Client{Host: "web-10", Caller: "job-9"})
		time.Sleep(10 * time.Second)
		page := s.get(200, "/host?host=web-1")
		expect.Has(t, page, "It holds 3 permits", "Revoke all 3 permits", "Type 3 to revoke them all", ">job-0<", ">job-1<", ">job-2<")
		hasNot(t, page, "job-3", "job-9", "secret")
		form := url.Values{"host": {"web-1"}, "all": {"3"}, "number": {"3"}}
		s.post(403, "/host", form, "Sec-Fetch-Site", "cross-site")
		s.post(400, "/host", url.Values{})
		for _, number := range []string{"", "2", "30", "all"} {
			expect.Has(t, s.post(400, "/host", url.Values{"host": {"web-1"}, "all": {"3"}, "number": {number}}).Body.String(), "want 3, how many permits")
		}
		s.get(400, "/host")
		if len(audit) != 0 {
			t.Errorf("%+v", audit)
		}
		to := s.post(303, "/host", form).Header().Get("Location")
		expect.Has(t, s.get(200, "/"+to), "3 permits revoked", "3 of them revoked already")
		if len(audit) != 3 {
			t.Errorf("%+v", audit)
		}
		for _, r := range audit {
			if r.What != "revoke" || r.Who != "olga" || r.Result != "done" || r.Permit == "" || !strings.HasPrefix(r.Name, "etl/") {
				t.Errorf("%+v", r)
			}
		}
		if n := strings.Count(s.get(200, "/semaphore?name=etl%2Fa"), ">revoked<"); n != 2 {
			t.Errorf("%d of the permits of etl/a are revoked", n)
		}
		who.Right = "read"
		s.post(403, "/host", form)
		hasNot(t, s.get(200, "/host?host=web-1"), "<form method=\"post\" action=\"host\"")
	})
}

// The address of callers of an API with tokens may be a proxy's: they are grouped by token, and shown by their ids. Revoking the
// permits of one token spares the other callers behind the same address.
func TestCallersOfAnAPIAreGroupedByToken(t *testing.T) {
	o := dashboard.Options{Login: func(*http.Request, string) (access.Who, bool) { return access.Who{Right: "admin", Name: "olga"}, true }}
	kept(t, o, func(t *testing.T, s *site) {
		for i, label := range []string{"billing nightly", "billing", "search nightly"} {
			s.named("x", 5, time.Hour, engine.Client{Host: "10.0.4.17", Label: label, Caller: fmt.Sprintf("order-%d", i)})
		}
		acquire(t, s.semaphore("x", 5, &sema.Options{Label: "billing by hand"}), 1)
		time.Sleep(10 * time.Second)
		cookie := []string{"Cookie", "sema_token=x"}
		page := s.get(200, "/semaphore?name=x", cookie...)
		same(t, "where", cells(page, "holders", "Where")[:3], "token billing", "token billing", "token search")
		expect.Has(t, page, "<bdi>order-0 nightly</bdi>", "<bdi>order-1</bdi>", "<bdi>billing by hand</bdi>", "<dt>From</dt><dd>10.0.4.17</dd>", `href="host?token=billing"`)
		hasNot(t, page, `href="host?host=10.0.4.17"`, "process 0")
		page = s.get(200, "/hosts", cookie...)
		expect.Has(t, page, ">token billing<", ">token search<")
		hasNot(t, page, "10.0.4.17")
		expect.Has(t, s.get(200, "/host?token=billing", cookie...), "It holds 2 permits", ">order-0 nightly<", ">order-1<")
		s.post(400, "/host", url.Values{"token": {"billing"}, "host": {"10.0.4.17"}, "all": {"2"}, "number": {"2"}}, append(cookie, "Sec-Fetch-Site", "same-origin")...)
		s.post(303, "/host", url.Values{"token": {"billing"}, "host": {""}, "all": {"2"}, "number": {" 2 "}}, append(cookie, "Sec-Fetch-Site", "same-origin")...)
		time.Sleep(time.Second) // a page shares a look
		if n := strings.Count(s.get(200, "/semaphore?name=x", cookie...), ">revoked<"); n != 2 {
			t.Errorf("%d permits are revoked", n)
		}
	})
}

// What is found leads to the page that has its row, and a search says how many it leaves out.
func TestWhatIsFoundLeadsToItsRow(t *testing.T) {
	kept(t, dashboard.Options{Allow: admin}, func(t *testing.T, s *site) {
		var none []string
		ids := s.asked("x", 50, 0, append(none, make([]string, 150)...)...)
		time.Sleep(10 * time.Second)
		page := s.get(200, "/?q=asked")
		expect.Has(t, page, "And 130 more", "permit="+ids[0])
		for _, id := range []string{ids[0], ids[49], ids[50], ids[149]} {
			expect.Has(t, s.get(200, "/?q="+id), "&amp;at="+id+"#"+id+`"`)
			expect.Has(t, s.get(200, "/semaphore?name=x&at="+id), `id="`+id+`"`)
		}
		expect.Has(t, s.get(200, "/semaphore?name=x&at="+ids[149]), "1 to 20 of 50 holders")
		expect.Has(t, s.get(200, "/semaphore?name=x&at=gone-1-1"), "1 to 20 of 100 waiters")
	})
}

// frozen is an engine that can stop answering, and counts what it is asked.
type frozen struct {
	protocol.Engine
	still  atomic.Bool
	looks  atomic.Int64
	listed atomic.Int64
}

func (f *frozen) hang(ctx context.Context) error {
	if !f.still.Load() {
		return nil
	}
	<-ctx.Done()
	return &engine.Error{Op: "state", NotExecuted: true, Temporary: true, Err: ctx.Err()}
}

func (f *frozen) List(ctx context.Context) ([]string, error) {
	f.listed.Add(1)
	if err := f.hang(ctx); err != nil {
		return nil, err
	}
	return f.Engine.List(ctx)
}

func (f *frozen) Open(name string, who engine.Client, notify func(protocol.Notification)) (protocol.Session, error) {
	s, err := f.Engine.Open(name, who, notify)
	return &frozenSession{s, f}, err
}

type frozenSession struct {
	protocol.Session
	f *frozen
}

func (s *frozenSession) State(ctx context.Context) (engine.State, error) {
	s.f.looks.Add(1)
	if err := s.f.hang(ctx); err != nil {
		return engine.State{}, err
	}
	return s.Session.State(ctx)
}

// A store that stands still is said to, with the time that the figures are of; and when it goes on, so does the page. A page
// that a script asks for again has no status of a failure, which browsers would write in the console, and is not logged.
func TestAFrozenStoreIsSaidToBe(t *testing.T) {
	for _, path := range []string{"/", "/?sort=use", "/semaphore?name=x"} {
		synctest.Test(t, func(t *testing.T) {
			e := &frozen{Engine: memengine.New()}
			s := openOn(t, e, dashboard.Options{Engine: "Redis"})
			acquire(t, s.semaphore("x", 1, nil), 1)
			expect.Has(t, s.get(200, path, "Sema-Live", "1"), "1 of 1", `data-live="1000"`)
			last := time.Now()
			time.Sleep(time.Second)
			e.still.Store(true)
			began := time.Now()
			page := s.get(200, path, "Sema-Live", "1")
			expect.Has(t, page, `<p id="text">Redis does not answer. Figures are of `+last.UTC().Format("15:04:05")+" UTC.")
			hasNot(t, page, "data-live")
			if took := time.Since(began); took > 5*time.Second {
				t.Errorf("%s: said after %v", path, took)
			}
			e.still.Store(false)
			expect.Has(t, s.get(200, path, "Sema-Live", "1"), "1 of 1", `data-live="1000"`)
			expect.Has(t, s.get(200, "/semaphore?name=gone", "Sema-Live", "1"), "Nobody uses")
		})
	}
}

// The first page of ten thousand semaphores, in any order, asks the store for the list
// of them and for those on the page, and says what its order is of.
func TestTheFirstPageOfTenThousandDoesNotWait(t *testing.T) {
	for _, order := range []string{"attention", "name", "oldest"} { // the others go the way of the last
		synctest.Test(t, func(t *testing.T) {
			e := &frozen{Engine: memengine.New()}
			s := openOn(t, e, dashboard.Options{})
			for i := range 10_000 {
				stepped(t, e.Engine, fmt.Sprintf("s%05d", i), engine.Client{}, protocol.Request{Kind: protocol.SetLimit, Limit: 3, Pin: true})
			}
			acquire(t, s.semaphore("s09999", 3, nil), 3)
			queue(t, e, "s09999", "w", 1)
			time.Sleep(2 * time.Minute) // so long a wait needs attention
			began := time.Now()
			page := s.get(200, "/?sort="+order)
			if lists, looks := e.listed.Load(), e.looks.Load(); lists > 2 || looks > 50+8 {
				t.Errorf("%s: %d lists and %d looks for a page of 50", order, lists, looks)
			}
			if took := time.Since(began); took > time.Second { // of a time that looks take none of
				t.Errorf("%s: it waited for %v", order, took)
			}
			expect.Has(t, page, "1 to 50 of 10,000 semaphores")
			if order == "name" {
				hasNot(t, page, "so far")
				return
			}
			expect.Has(t, page, "of 10,000 semaphores have been looked at so far")
			time.Sleep(15 * time.Second)
			page = s.get(200, "/?sort="+order)
			hasNot(t, page, "so far")
			if first, _, _ := strings.Cut(keys(page), " "); first != "s09999" {
				t.Errorf("%s: the first is %s", order, first)
			}
		})
	}
}

// Hosts are listed, those first whose leases are about to end.
func TestHosts(t *testing.T) {
	o := dashboard.Options{Rows: 2, Allow: func(*http.Request) access.Who { return access.Who{Right: "read", Prefixes: []string{"etl/"}} }}
	kept(t, o, func(t *testing.T, s *site) {
		for i, c := range []struct {
			name, host string
			lease      time.Duration
		}{{"etl/a", "web-1", time.Hour}, {"etl/b", "web-1", time.Hour}, {"etl/a", "web-2", time.Minute}, {"secret", "web-3", time.Hour}, {"etl/c", "web-4", time.Hour}} {
			s.named(c.name, 5, c.lease, engine.Client{Host: c.host, PID: 7, Caller: fmt.Sprintf("job-%d", i)})
		}
		time.Sleep(50 * time.Second)
		page := s.get(200, "/hosts")
		expect.Has(t, page, "1 lease about to end", `data-label="Permits">2<`, `href="host?host=web-1"`, `href="./?q=web-1"`, "1 to 2 of 3 hosts", `href="hosts?page=2"`)
		hasNot(t, page, "web-3", "web-4")
		if strings.Index(page, ">web-2<") > strings.Index(page, ">web-1<") {
			t.Error("the one in trouble is not the first")
		}
		expect.Has(t, s.get(200, "/"), "4 permits are held, and 0 callers wait")
	})
}

// The chart of waits has a column for each period in which somebody was granted a permit, up to the bound below which
// 95 % of them were. It ends now, has marks at round minutes, and is not there for what has been seen for a moment.
func TestWaitsAreDrawnAsBounds(t *testing.T) {
	kept(t, dashboard.Options{}, func(t *testing.T, s *site) {
		release := s.named("x", 1, time.Hour, engine.Client{Caller: "first"})
		s.named("x", 1, time.Hour, engine.Client{Caller: "second"})
		time.Sleep(100 * time.Second)
		hasNot(t, s.get(200, "/semaphore?name=x"), "<figure>")
		time.Sleep(300 * time.Second)
		release()
		time.Sleep(20 * time.Second)
		_, chart, _ := strings.Cut(s.get(200, "/semaphore?name=x"), "<h2>Waits of those who got a permit</h2>")
		chart, _, _ = strings.Cut(chart, "</figure>")
		expect.Has(t, chart, ">1s<", ">10s<", ">1m<", ">95 % under<", "half under 8m 32s at most, 95 % under 8m 32s at most")
		hasNot(t, chart, ">10m<", "<path")
		same(t, "caps", columns(chart, "cap"), "0.00% 148", "95.24% 8") // of under 1 s, and under 512 s: the top of the chart
		var marks []string
		for _, found := range regexp.MustCompile(`data-time="2000-01-01T00:(\d\d:\d\d)Z"`).FindAllStringSubmatch(chart, -1) {
			marks = append(marks, found[1])
		}
		same(t, "marks", marks, "01:00", "02:00", "03:00", "04:00", "05:00", "06:00")
	})
}

// columns are where those of a class are in a chart.
func columns(chart, class string) (found []string) {
	for _, at := range regexp.MustCompile(`<rect class="`+class+`" x="([^"]*)" width="[^"]*" y="([\d]*)`).FindAllStringSubmatch(chart, -1) {
		found = append(found, at[1]+" "+at[2])
	}
	return found
}
