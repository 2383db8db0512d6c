package semahttp_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"sema"
	"sema/each"
	"sema/engines/memengine"
	"sema/internal/fixture/expect"
	"sema/semahttp"
	"sema/sematest"
)

// drip answers one line at once and goes on when it is told to, or when the
// client has gone.
func drip(t testing.TB, goOn chan struct{}, gone chan error) string {
	return serve(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, "first\n")
		_ = http.NewResponseController(w).Flush()
		select {
		case <-goOn:
			_, _ = io.WriteString(w, "second\n")
		case <-r.Context().Done():
			gone <- r.Context().Err()
		}
	})
}

func TestThePermitLivesAsLongAsTheBody(t *testing.T) {
	for _, c := range []struct {
		ends string
		end  func(t *testing.T, goOn chan struct{}, cancel func(), resp *http.Response)
	}{
		{"at its end", func(t *testing.T, goOn chan struct{}, _ func(), resp *http.Response) {
			close(goOn)
			if got := read(t, resp.Body); got != "second\n" {
				t.Errorf("the rest is %q", got)
			}
		}},
		{"when it is closed", func(t *testing.T, _ chan struct{}, _ func(), resp *http.Response) { expect.OK(t, resp.Body.Close()) }},
		{"on cancellation while it is read", func(t *testing.T, _ chan struct{}, cancel func(), resp *http.Response) {
			cancel()
			if _, err := io.ReadAll(resp.Body); !errors.Is(err, context.Canceled) {
				t.Errorf("reading: %v", err)
			}
		}},
		{"on cancellation while nobody reads it", func(t *testing.T, _ chan struct{}, cancel func(), resp *http.Response) { cancel() }},
	} {
		t.Run(c.ends, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				sem, goOn, gone := newSem(t, 1), make(chan struct{}), make(chan error, 1)
				ctx, cancel := context.WithCancel(expect.Within(t))
				defer cancel()
				resp := get(t, transport(t, sem), ctx, drip(t, goOn, gone))
				line, err := bufio.NewReaderSize(io.LimitReader(resp.Body, 6), 16).ReadString('\n')
				expect.OK(t, err)
				if line != "first\n" || used(t, sem) != 1 {
					t.Fatalf("read %q with %d permits held", line, used(t, sem))
				}
				c.end(t, goOn, cancel, resp)
				expect.Until(t, "the permit is back", func() bool { return used(t, sem) == 0 })
				select {
				case <-goOn:
				default:
					<-gone // the upstream knows, too
				}
				expect.OK(t, resp.Body.Close()) // once more does nothing
			})
		})
	}
}

func TestNothingIsHeldOnceReadOrCloseReturned(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sem, goOn := newSem(t, 1), make(chan struct{})
		close(goOn)
		u, tr := drip(t, goOn, make(chan error, 40)), transport(t, sem)
		for range 20 {
			resp := get(t, tr, expect.Within(t), u)
			_ = read(t, resp.Body)
			nothingHeld(t, sem)
			resp = get(t, tr, expect.Within(t), u)
			expect.OK(t, resp.Body.Close())
			nothingHeld(t, sem)
			if _, err := resp.Body.Read(make([]byte, 1)); err == nil || errors.Is(err, io.EOF) {
				t.Fatalf("reading after Close: %v", err)
			}
		}
	})
}

func TestAnAnswerWithoutBodyHoldsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u := serve(t, func(w http.ResponseWriter, r *http.Request) {
			switch r.URL.Path {
			case "/204":
				w.WriteHeader(http.StatusNoContent)
			case "/hints":
				w.Header().Set("Link", "</style.css>; rel=preload")
				w.WriteHeader(http.StatusEarlyHints)
				w.WriteHeader(http.StatusNoContent)
			case "/head":
				w.Header().Set("Content-Length", "1000")
			}
		})
		sem := newSem(t, 1)
		tr := transport(t, sem)
		for _, c := range []struct{ method, path string }{{"GET", "/204"}, {"GET", "/hints"}, {"HEAD", "/head"}, {"GET", "/empty"}} {
			r, err := http.NewRequestWithContext(expect.Within(t), c.method, u+c.path, nil)
			expect.OK(t, err)
			resp, err := tr.RoundTrip(r)
			expect.OK(t, err)
			if n := used(t, sem); n != 0 || resp.Request != r || resp.Body == nil {
				t.Errorf("%s %s: %d held before the body was closed; request %p, want %p", c.method, c.path, n, resp.Request, r)
			}
			expect.OK(t, resp.Body.Close())
		}
		for _, resp := range []*http.Response{{StatusCode: 200}, {StatusCode: 101}, {StatusCode: 204, Body: io.NopCloser(strings.NewReader(""))}} {
			bare := &semahttp.Transport{Limit: by(sem), Base: roundTripper(func(*http.Request) (*http.Response, error) { return resp, nil })}
			_, err := bare.RoundTrip(request(t, expect.Within(t), u))
			if n := used(t, sem); err != nil || n != 0 {
				t.Errorf("%+v: %d held, %v", resp, n, err)
			}
		}
	})
}

func TestABodyThatNobodyClosesIsFound(t *testing.T) {
	sem, gone := newSem(t, 1), make(chan error, 1)
	tr := transport(t, sem)
	told := make(chan semahttp.Abandoned, 1)
	tr.Observer.Abandoned = func(a semahttp.Abandoned) { told <- a }
	tr.Used = func(*http.Response, []byte) map[string]int { return nil }
	u := drip(t, make(chan struct{}), gone)
	resp := get(t, tr, expect.Within(t), u)
	_, err := io.ReadFull(resp.Body, make([]byte, 3))
	expect.OK(t, err)
	resp = nil
	collectUntil(t, "the body is found", func() bool { return len(told) == 1 })
	if a, want := <-told, (semahttp.Abandoned{Method: "GET", URL: u, Limiter: "upstream"}); a != want {
		t.Errorf("told %+v, want %+v", a, want)
	}
	<-gone
	nothingHeld(t, sem)
}

func TestALostPermitCancelsTheRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sem, gone := newSem(t, 1), make(chan error, 1)
		tr, u := transport(t, sem), drip(t, make(chan struct{}), gone)
		resp := get(t, tr, expect.Within(t), u)
		_, err := io.ReadFull(resp.Body, make([]byte, 6))
		expect.OK(t, err)
		revoke(t, sem)
		_, err = io.ReadAll(resp.Body)
		if !errors.Is(err, sema.ErrRevoked) || !errors.Is(err, sema.ErrLost) {
			t.Errorf("reading: %v, want the loss", err)
		}
		<-gone
		if _, again := resp.Body.Read(make([]byte, 1)); !errors.Is(again, sema.ErrLost) {
			t.Errorf("reading again: %v, want the loss", again)
		}
		expect.OK(t, resp.Body.Close())

		// The same before there is an answer.
		arrived := make(chan struct{})
		silent := serve(t, func(_ http.ResponseWriter, r *http.Request) { close(arrived); <-r.Context().Done() })
		go func() { <-arrived; revoke(t, sem) }()
		_, err = (&http.Client{Transport: tr}).Get(silent)
		seen := &url.Error{}
		if !errors.As(err, &seen) || !errors.Is(err, sema.ErrLost) {
			t.Errorf("waiting for the answer: %v, want the loss", err)
		}
		expect.Until(t, "the permit is back", func() bool { return used(t, sem) == 0 })
	})
}

func TestAClosedSemaphoreEndsItsRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sem, gone := newSem(t, 1), make(chan error, 1)
		tr, u := transport(t, sem), drip(t, make(chan struct{}), gone)
		resp := get(t, tr, expect.Within(t), u)
		expect.OK(t, sem.Close())
		<-gone
		if _, err := io.ReadAll(resp.Body); !errors.Is(err, sema.ErrLost) || errors.Is(err, sema.ErrClosed) {
			t.Errorf("reading: %v", err)
		}
		expect.OK(t, resp.Body.Close())
		if _, err := (&http.Client{Transport: tr}).Get(u); !errors.Is(err, sema.ErrClosed) {
			t.Errorf("another: %v", err)
		}
	})
}

// closeCounter is a request's body that counts how often it is closed.
type closeCounter struct {
	io.Reader
	closed atomic.Int64
}

func (c *closeCounter) Close() error { c.closed.Add(1); return nil }

func TestAWaitInVain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sem := newSem(t, 1)
		p, err := sem.Acquire(expect.Within(t))
		expect.OK(t, err)
		defer func() { _ = p.Release() }()
		never := roundTripper(func(*http.Request) (*http.Response, error) { t.Error("it was sent"); return nil, io.EOF })
		cancelled, cancel := context.WithCancel(expect.Within(t))
		cancel()
		for _, c := range []struct {
			what  string
			ctx   context.Context
			limit func(*http.Request) semahttp.Limiter
			want  []error
			late  bool
		}{
			{"longer than Wait", expect.Within(t), by(sem), []error{sema.ErrBusy, context.DeadlineExceeded}, true},
			{"cancelled", cancelled, by(sem), []error{sema.ErrBusy, context.Canceled}, false},
			{"refused", expect.Within(t), limited("fake", func(context.Context, ...sema.AcquireOption) (*sema.Permit, error) { return nil, sema.ErrClosed }), []error{sema.ErrClosed}, false},
			{"nothing given", expect.Within(t), limited("fake", func(context.Context, ...sema.AcquireOption) (*sema.Permit, error) { return nil, nil }), nil, false},
			{"no Limit", expect.Within(t), nil, nil, false},
		} {
			tr := &semahttp.Transport{Base: never, Limit: c.limit, Wait: 10 * time.Millisecond}
			body := &closeCounter{Reader: strings.NewReader("x")}
			r, err := http.NewRequestWithContext(c.ctx, http.MethodPost, "http://example.org", body)
			expect.OK(t, err)
			_, err = (&http.Client{Transport: tr}).Do(r)
			seen := &url.Error{}
			if !errors.As(err, &seen) || seen.Timeout() != c.late || !strings.Contains(err.Error(), "semahttp: ") {
				t.Errorf("%s: %v", c.what, err)
			}
			for _, want := range c.want {
				if !errors.Is(err, want) {
					t.Errorf("%s: %v, want %v", c.what, err, want)
				}
			}
			if body.closed.Load() == 0 {
				t.Errorf("%s: the request's body was not closed", c.what)
			}
		}
		at := time.Now()
		if _, err := (&semahttp.Transport{Limit: by(sem), Wait: semahttp.NoWait}).RoundTrip(request(t, t.Context(), "http://a.example")); !errors.Is(err, sema.ErrBusy) || time.Since(at) != 0 {
			t.Errorf("without a wait: %v after %v", err, time.Since(at))
		}
		expect.Until(t, "the queue is empty", func() bool { return waiters(t, sem) == 0 })
	})
}

// Servers close the connections that clients keep.
func TestWhatTheTransportRepeatsIsOneRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		times := atomic.Int64{}
		u := serve(t, func(w http.ResponseWriter, r *http.Request) {
			got, err := io.ReadAll(r.Body)
			if err != nil || string(got) != "hello" {
				t.Errorf("the body is %q, %v", got, err)
			}
			if times.Add(1) == 2 { // on the connection that was kept
				panic(http.ErrAbortHandler)
			}
			_, _ = fmt.Fprint(w, "done")
		})
		sem := newSem(t, 1)
		acquired := atomic.Int64{}
		tr := transport(t, sem)
		tr.Limit = limited("fake", func(ctx context.Context, options ...sema.AcquireOption) (*sema.Permit, error) {
			acquired.Add(1)
			return sem.Acquire(ctx, options...)
		})
		for range 2 {
			r, err := http.NewRequestWithContext(expect.Within(t), http.MethodPost, u, strings.NewReader("hello"))
			expect.OK(t, err)
			r.Header.Set("Idempotency-Key", "1") // so that http.Transport may repeat it
			resp, err := tr.RoundTrip(r)
			expect.OK(t, err)
			if got := read(t, resp.Body); got != "done" {
				t.Errorf("the answer is %q", got)
			}
		}
		if times.Load() != 3 || acquired.Load() != 2 || used(t, sem) != 0 {
			t.Errorf("%d requests served, %d permits, %d held; want 3, 2, 0", times.Load(), acquired.Load(), used(t, sem))
		}
	})
}

func TestARedirectIsARequestOfItsOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u := serve(t, func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/" {
				http.Redirect(w, r, "/there", http.StatusFound) // and a body
				return
			}
			_, _ = io.WriteString(w, r.URL.Path)
		})
		sem := newSem(t, 1) // the first has to be over before the second
		resp := get(t, transport(t, sem), expect.Within(t), u+"/")
		if got := read(t, resp.Body); got != "/there" {
			t.Errorf("got %q", got)
		}
	})
}

func TestHTTP2(t *testing.T) {
	gone, arrived := make(chan error, 2), make(chan struct{}, 3)
	u, base := serveTLS(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, r.Proto)
		_ = http.NewResponseController(w).Flush()
		arrived <- struct{}{}
		<-r.Context().Done()
		gone <- r.Context().Err()
	}), true)
	sem := newSem(t, 2)
	tr := &semahttp.Transport{Base: base, Limit: by(sem)}
	told := make(chan semahttp.Abandoned, 1)
	tr.Observer.Abandoned = func(a semahttp.Abandoned) { told <- a }
	first, dropped := get(t, tr, expect.Within(t), u), get(t, tr, expect.Within(t), u)
	<-arrived
	<-arrived
	if first.ProtoMajor != 2 || dropped.StatusCode != 200 || used(t, sem) != 2 {
		t.Fatalf("%s, %d held", first.Proto, used(t, sem))
	}
	expect.OK(t, first.Body.Close())
	<-gone
	dropped = nil
	collectUntil(t, "the dropped one is found", func() bool { return len(told) == 1 })
	<-gone
	nothingHeld(t, sem)
}

func TestAPanicBelowReleases(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sem := newSem(t, 1)
		tr := &semahttp.Transport{Limit: by(sem), Base: roundTripper(func(*http.Request) (*http.Response, error) { panic("below") })}
		func() {
			defer func() { _ = recover() }()
			_, _ = tr.RoundTrip(request(t, expect.Within(t), "http://example.org"))
		}()
		nothingHeld(t, sem)
	})
}

type closing struct {
	http.RoundTripper
	closed int
}

func (c *closing) CloseIdleConnections() { c.closed++ }

func TestCloseIdleConnections(t *testing.T) {
	base := &closing{}
	(&http.Client{Transport: &semahttp.Transport{Base: base}}).CloseIdleConnections()
	if base.closed != 1 {
		t.Errorf("Base closed its idle connections %d times, want once", base.closed)
	}
	(&semahttp.Transport{Base: roundTripper(nil)}).CloseIdleConnections() // cannot
}

func TestHost(t *testing.T) {
	for _, c := range []struct{ url, want string }{
		{"http://Example.ORG/x", "example.org"},
		{"http://example.org:80/x", "example.org"},
		{"https://example.org:443", "example.org"},
		{"http://example.org:443", "example.org:443"},
		{"http://example.org:8080", "example.org:8080"},
		{"http://example.org:", "example.org"},
		{"http://[::1]:8080/", "[::1]:8080"},
		{"http://[::1]:80/", "[::1]"},
		{"http://[::1]/", "[::1]"},
	} {
		r, err := http.NewRequest(http.MethodGet, c.url, nil)
		expect.OK(t, err)
		if got := semahttp.Host(r); got != c.want {
			t.Errorf("Host(%s) = %q, want %q", c.url, got, c.want)
		}
	}
	if got := semahttp.Host(httptest.NewRequest(http.MethodGet, "/x", nil)); got != "example.com" {
		t.Errorf("Host of a served request = %q", got)
	}
	if got := semahttp.Host(httptest.NewRequest(http.MethodGet, "https://example.com:443/x", nil)); got != "example.com" {
		t.Errorf("Host of a served request with TLS = %q", got)
	}
}

// A limiter has the name of what it limits, which its errors say.
func TestNamesOfLimiters(t *testing.T) {
	sem := newSem(t, 1)
	hosts, err := each.New(memengine.New(), "hosts", 1, nil)
	expect.OK(t, err)
	defer func() { expect.OK(t, hosts.Close()) }()
	for _, c := range []struct {
		l    semahttp.Limiter
		want string
	}{
		{semahttp.Of(sem), "upstream"},
		{semahttp.Of(sem, sema.Weight(2)), "upstream"},
		{semahttp.Of(sem, sema.For("a"), sema.Weight(2), sema.For("b")), "b"},
		{semahttp.Of(sem, sema.For("acme", "a/b")), "acme/a%2Fb"},
		{semahttp.OfEach(hosts, "a.example", sema.Weight(2)), "a.example"},
	} {
		tr := &semahttp.Transport{Limit: func(*http.Request) semahttp.Limiter { return c.l }}
		_, err := tr.RoundTrip(request(t, cancelledContext(), "http://a.example"))
		if c.l.Name != c.want || err == nil || !strings.HasPrefix(err.Error(), fmt.Sprintf("semahttp: %q:", c.want)) {
			t.Errorf("%q: %v; want %q", c.l.Name, err, c.want)
		}
	}
}

func cancelledContext() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}

// The options of Of and OfEach reach the semaphore, and those of a call at once do not mix.
func TestOptionsOfALimiter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		engine := sematest.New(t)
		sem, err := sema.New(engine, "x", 10, nil)
		expect.OK(t, err)
		group, err := each.New(engine, "g", 10, nil)
		expect.OK(t, err)
		for name, l := range map[string]semahttp.Limiter{
			"x":   semahttp.Of(sem, sema.For("acme", "alice"), sema.Weight(3)),
			"g/a": semahttp.OfEach(group, "a", sema.For("acme", "alice"), sema.Weight(3)),
		} {
			p, err := l.Acquire(t.Context(), sema.AnswerWithin(time.Second))
			expect.OK(t, err)
			held := engine.Held(name)
			if len(held) != 1 || held[0].Key.String() != "acme/alice" || held[0].Weight != 3 {
				t.Errorf("%s: held %+v", name, held)
			}
			expect.OK(t, p.Release())
		}
		expect.OK(t, group.Close())
		expect.OK(t, sem.Close())
	})
}

// Two at once for each host and three in all.
func TestLimitsPerKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		engine := sematest.New(t)
		sem := open(t, engine, "hosts", 3, &sema.Options{Caps: sema.Caps{2}})
		base := roundTripper(func(r *http.Request) (*http.Response, error) {
			all := engine.Held("hosts")
			own := slices.DeleteFunc(slices.Clone(all), func(p sematest.Permit) bool { return string(p.Key) != r.URL.Host })
			held := fmt.Sprint(len(own), len(all))
			return &http.Response{StatusCode: 200, Body: io.NopCloser(strings.NewReader(held)), Request: r}, nil
		})
		tr := &semahttp.Transport{Base: base, Limit: func(r *http.Request) semahttp.Limiter { return semahttp.Of(sem, sema.For(semahttp.Host(r))) }}
		var open []*http.Response
		for _, c := range []struct{ host, held, waits string }{{"a", "1 1", ""}, {"a", "2 2", ""}, {"a", "", "a"}, {"b", "1 3", ""}, {"c", "", "c"}} {
			ctx, cancel := context.WithCancel(expect.Within(t))
			defer cancel()
			if c.waits != "" {
				go func() {
					engine.AwaitWaiting(ctx, "hosts", 1)
					cancel()
				}()
			}
			resp, err := tr.RoundTrip(request(t, ctx, "http://"+c.host+"/"))
			if c.waits != "" {
				if !errors.Is(err, sema.ErrBusy) {
					t.Errorf("%s: %v, want nothing free", c.host, err)
				}
				expect.Until(t, "nobody waits", func() bool { st, err := sem.State(t.Context()); return err == nil && st.Waiting() == 0 }) // else it counts for the next
				continue
			}
			expect.OK(t, err)
			held := make([]byte, 3)
			if _, err := io.ReadFull(resp.Body, held); err != nil || string(held) != c.held {
				t.Errorf("%s: %q, %v; want %q held", c.host, held, err, c.held)
			}
			open = append(open, resp)
		}
		for _, resp := range open {
			expect.OK(t, resp.Body.Close())
		}
		if n := len(engine.Held("hosts/a")) + len(engine.Held("hosts/b")) + len(engine.Held("hosts")); n > 0 {
			t.Errorf("%d still held", n)
		}
	})
}
