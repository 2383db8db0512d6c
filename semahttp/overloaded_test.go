package semahttp_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"sema"
	"sema/admit"
	"sema/engines/memengine"
	"sema/internal/fixture/expect"
	"sema/semahttp"
)

// marked is a permit that notes whether its hold went badly.
type marked struct {
	bad, released chan struct{}
}

func (marked) Context(parent context.Context) context.Context { return parent }
func (marked) Err() error                                     { return nil }
func (m marked) Overloaded()                                  { close(m.bad) }
func (m marked) Release() error                               { close(m.released); return nil }

// one is a limiter that gives a permit once, and how that one went.
func one() (limit func(*http.Request) semahttp.Limiter, bad func(t *testing.T) bool) {
	m := marked{make(chan struct{}), make(chan struct{})}
	limit = func(*http.Request) semahttp.Limiter {
		return semahttp.Limiter{Name: "x", Acquire: func(context.Context, ...sema.AcquireOption) (semahttp.Permit, error) { return m, nil }}
	}
	return limit, func(t *testing.T) bool {
		<-m.released
		select {
		case <-m.bad:
			return true
		default:
			return false
		}
	}
}

func TestTransportMarksOverload(t *testing.T) {
	var answer int
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(answer) }))
	defer server.Close()
	for _, c := range []struct {
		answer int
		err    error
		judge  func(*http.Response, error) bool
		want   bool
	}{
		{answer: 200}, {answer: 404}, {answer: 500}, {answer: 429, want: true}, {answer: 503, want: true}, {answer: 504, want: true},
		{err: errors.New("refused")}, {err: context.DeadlineExceeded, want: true}, {err: os.ErrDeadlineExceeded, want: true},
		{answer: 429, judge: func(*http.Response, error) bool { return false }},
		{answer: 500, judge: func(a *http.Response, _ error) bool { return a.StatusCode == 500 }, want: true},
	} {
		limit, bad := one()
		answer = c.answer
		transport := &semahttp.Transport{Limit: limit, Overloaded: c.judge}
		if c.err != nil {
			transport.Base = failing{c.err}
		}
		resp, err := (&http.Client{Transport: transport}).Get(server.URL)
		if err == nil {
			expect.OK(t, resp.Body.Close())
		}
		if got := bad(t); got != c.want {
			t.Errorf("%d, %v: marked %v, want %v", c.answer, c.err, got, c.want)
		}
	}
}

// failing is a transport that fails.
type failing struct{ err error }

func (f failing) RoundTrip(*http.Request) (*http.Response, error) { return nil, f.err }

func TestHandlerMarksOverload(t *testing.T) {
	for _, http2 := range []bool{false, true} {
		for status, want := range map[int]bool{200: false, 404: false, 429: true, 503: true, 504: true} {
			limit, bad := one()
			handler := &semahttp.Handler{Limit: limit, Next: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.WriteHeader(status)
				w.(http.Flusher).Flush()
			})}
			server := httptest.NewUnstartedServer(handler)
			server.EnableHTTP2 = http2
			server.StartTLS()
			resp, err := server.Client().Get(server.URL)
			expect.OK(t, err)
			if resp.StatusCode != status || (resp.ProtoMajor == 2) != http2 {
				t.Errorf("%s %d", resp.Proto, resp.StatusCode)
			}
			expect.OK(t, resp.Body.Close())
			if got := bad(t); got != want {
				t.Errorf("%d: marked %v, want %v", status, got, want)
			}
			server.Close()
		}
	}
}

// What another side says of when to come again is heard by all; what it does not say is not made up.
func TestTransportHearsRetryAfter(t *testing.T) {
	var answer int
	var date, after string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Date", date)
		w.Header().Set("Retry-After", after)
		w.WriteHeader(answer)
	}))
	defer server.Close()
	const at, later = "Sun, 06 Nov 1994 08:49:37 GMT", "Sun, 06 Nov 1994 08:50:37 GMT" // its clock is decades late
	for i, c := range []struct {
		answer     int
		after      string
		over, upTo time.Duration
	}{
		{429, "60", 50 * time.Second, time.Minute}, {503, "60", 50 * time.Second, time.Minute}, {429, later, 50 * time.Second, time.Minute},
		{429, "99999999999", 9 * time.Minute, 10 * time.Minute}, {429, "99999999999999999999", 9 * time.Minute, 10 * time.Minute}, {answer: 429, after: "-9223372037"},
		{answer: 429}, {answer: 429, after: "0"}, {answer: 429, after: "-5"}, {answer: 429, after: "soon"}, {answer: 429, after: at}, {answer: 200, after: "60"}, {answer: 301, after: "60"},
	} {
		answer, date, after = c.answer, at, c.after
		s := newSem(t, 5)
		transport := &semahttp.Transport{Limit: by(s), Outage: []admit.Policy{admit.Closed, admit.Open, admit.Local(5, 0)}[i%3]}
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL, nil)
		expect.OK(t, err)
		resp, err := transport.RoundTrip(r)
		expect.OK(t, err)
		expect.OK(t, resp.Body.Close())
		st, err := s.State(expect.Within(t))
		expect.OK(t, err)
		left := time.Duration(0)
		if st.Cooldown != nil {
			left = st.Cooldown.Left
		}
		if left < c.over || left > c.upTo {
			t.Errorf("%d, %q: nobody is granted for %v, want %v to %v", c.answer, c.after, left, c.over, c.upTo)
		}
	}
}

// What was used of a rate is settled before the permit is back: however the response is read, and not if it cannot be told. Otherwise
// the response is as without a Transport.
func TestTransportSettles(t *testing.T) {
	tokens := regexp.MustCompile(`"tokens":(\d+)`)
	answers := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/none":
			w.WriteHeader(http.StatusNoContent)
		case "/long":
			_, _ = fmt.Fprintf(w, `{"text":"%s","tokens":7}`, strings.Repeat("a", 100_000))
		default:
			_, _ = fmt.Fprint(w, `{"tokens":7}  `)
		}
		_ = http.NewResponseController(w).Flush()
		w.Header().Set(http.TrailerPrefix+"Cost", "7")
	})
	all := func(r io.Reader) { _, _ = io.Copy(io.Discard, r) }
	lines := func(r io.Reader) {
		for b := bufio.NewReader(r); ; {
			if _, err := b.ReadString('\n'); err != nil {
				if _, again := b.ReadString('\n'); err != io.EOF || again != err {
					t.Errorf("ends with %v, and then %v", err, again)
				}
				return
			}
		}
	}
	for name, c := range map[string]struct {
		path string
		read func(io.Reader)
		used int
	}{
		"to its end":         {"/", all, 7},
		"line by line":       {"/", lines, 7},
		"in parts":           {"/", func(r io.Reader) { all(iotest.OneByteReader(r)) }, 7},
		"of 100 kB":          {"/long", all, 7},
		"to the end of JSON": {"/", func(r io.Reader) { _ = json.NewDecoder(r).Decode(&struct{}{}) }, 7},
		"not at all":         {"/", func(io.Reader) {}, 50},
		"empty":              {"/none", all, 3},
	} {
		t.Run(name, func(t *testing.T) {
			for _, http2 := range []bool{false, true} {
				server := httptest.NewUnstartedServer(answers)
				server.EnableHTTP2 = http2
				server.StartTLS()
				s := open(t, memengine.New(), "llm", 5, &sema.Options{Pools: "tpm=1000/24h"})
				calls := 0
				transport := &semahttp.Transport{
					Base:  server.Client().Transport,
					Limit: by(s, sema.Take("tpm", 50)),
					Used: func(a *http.Response, end []byte) map[string]int {
						calls++
						if a.StatusCode == http.StatusNoContent {
							return map[string]int{"tpm": 3, "another": 9}
						}
						if found := tokens.FindSubmatch(end); found != nil {
							n, _ := strconv.Atoi(string(found[1]))
							return map[string]int{"tpm": n}
						}
						return nil
					},
				}
				r := request(t, t.Context(), server.URL+c.path)
				resp, err := transport.RoundTrip(r)
				expect.OK(t, err)
				if resp.Request != r {
					t.Error("the response is of another request")
				}
				c.read(resp.Body)
				expect.OK(t, resp.Body.Close())
				if name == "to its end" && resp.Trailer.Get("Cost") != "7" {
					t.Errorf("trailers %v", resp.Trailer)
				}
				if n := usedOf(t, s); used(t, s) != 0 || n != c.used || calls != 1 {
					t.Errorf("%s: %d held, %d used of the rate, want %d; asked %d times", resp.Proto, used(t, s), n, c.used, calls)
				}
				server.Close()
			}
		})
	}
}

// usedOf is how much is used of the only pool.
func usedOf(t testing.TB, s *sema.Semaphore) int {
	t.Helper()
	st, err := s.State(expect.Within(t))
	expect.OK(t, err)
	return st.Pools[0].Used
}

// What settles is asked wrongly, fails, or has nothing to settle.
func TestSettlingThatFails(t *testing.T) {
	u := serve(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = fmt.Fprint(w, "7 tokens") })
	s := open(t, memengine.New(), "llm", 5, &sema.Options{Pools: "tpm=1000/24h"})
	transport := &semahttp.Transport{Base: connections(t), Limit: by(s, sema.Take("tpm", 50)), Used: func(*http.Response, []byte) map[string]int { panic("a user's mistake") }}
	func() {
		defer func() { _ = recover() }()
		_ = get(t, transport, t.Context(), u).Body.Close()
	}()
	nothingHeld(t, s)

	// A request that runs without a permit, under another one's.
	away := semahttp.Limiter{Name: "away", Acquire: func(context.Context, ...sema.AcquireOption) (semahttp.Permit, error) { return nil, sema.ErrEngine }}
	without := &semahttp.Transport{Base: connections(t), Limit: func(*http.Request) semahttp.Limiter { return away }, Outage: admit.Open, Observer: semahttp.Observer{Outage: func(admit.Outage) {}},
		Used: func(*http.Response, []byte) map[string]int { return map[string]int{"tpm": 7} }}
	expect.OK(t, s.Do(t.Context(), func(ctx context.Context) error { return get(t, without, ctx, u).Body.Close() }, sema.Take("tpm", 50)))
	if n := usedOf(t, s); n != 100 {
		t.Errorf("%d used, want twice 50", n)
	}
	semahttp.Settle(&http.Response{Body: http.NoBody}, without.Used)
}
