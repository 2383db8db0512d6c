package semahttp_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"mime/multipart"
	"net/http"
	"net/http/httptest"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"sema"
	"sema/each"
	"sema/engine"
	"sema/engines/memengine"
	"sema/internal/fixture/expect"
	"sema/internal/protocol"
	"sema/semahttp"
)

// answer is what h answers to a plain request.
func answer(h http.Handler, ctx context.Context) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", nil).WithContext(ctx))
	return w
}

func TestAWaitInVainIsAnswered(t *testing.T) {
	for _, c := range []struct {
		handler *semahttp.Handler
		wait    time.Duration
		status  int
		retry   string
	}{
		{&semahttp.Handler{}, 10 * time.Second, 503, "1"},
		{&semahttp.Handler{Wait: semahttp.NoWait}, 0, 503, "1"},
		{&semahttp.Handler{Wait: time.Second, Status: 429, RetryAfter: 1500 * time.Millisecond}, time.Second, 429, "2"},
	} {
		synctest.Test(t, func(t *testing.T) {
			sem := newSem(t, 1)
			p, err := sem.Acquire(t.Context())
			expect.OK(t, err)
			h := c.handler
			h.Limit = by(sem)
			h.Next = http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("it was served") })
			began := time.Now()
			w := answer(h, t.Context())
			if got := time.Since(began); got != c.wait || w.Code != c.status || w.Header().Get("Retry-After") != c.retry {
				t.Errorf("after %v: %d, Retry-After %q; want %v, %d, %q", got, w.Code, w.Header().Get("Retry-After"), c.wait, c.status, c.retry)
			}
			if h.Position == "" && len(w.Header()) > 3 { // Content-Type, X-Content-Type-Options, Retry-After
				t.Errorf("headers %v", w.Header())
			}
			expect.OK(t, p.Release())
		})
	}
}

// A request that cannot be served within Wait is refused at once, and told when those before it
// will have been served.
func TestARequestThatIsRefusedAtOnceIsToldWhen(t *testing.T) {
	for _, c := range []struct {
		handler     *semahttp.Handler
		least, most int
	}{
		{&semahttp.Handler{Status: 429}, 14, 46},
		{&semahttp.Handler{Status: 429, RetryAfter: 7 * time.Second}, 7, 7},
	} {
		synctest.Test(t, func(t *testing.T) {
			sem := newSem(t, 1)
			h := c.handler
			h.Limit, h.Wait = by(sem), 25*time.Second
			h.Next = http.HandlerFunc(func(http.ResponseWriter, *http.Request) { time.Sleep(10 * time.Second) })
			done := make(chan int, 4)
			come := func() {
				go func() { done <- answer(h, t.Context()).Code }()
				time.Sleep(time.Millisecond)
			}
			for range 3 {
				come()
			}
			if code := <-done; code != 200 { // the next one waited for ten seconds
				t.Errorf("%d", code)
			}
			come()
			began := time.Now()
			w := answer(h, t.Context())
			after, err := strconv.Atoi(w.Header().Get("Retry-After"))
			if waited := time.Since(began); waited > 0 || w.Code != 429 || err != nil || after < c.least || after > c.most {
				t.Errorf("after %v: %d, Retry-After %q; want %d … %d at once", waited, w.Code, w.Header().Get("Retry-After"), c.least, c.most)
			}
			for range 3 {
				if code := <-done; code != 200 {
					t.Errorf("%d", code)
				}
			}
		})
	}
}

func TestWhoTheClientLeavesWaitsNoMore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sem := newSem(t, 1)
		p, err := sem.Acquire(t.Context())
		expect.OK(t, err)
		h := &semahttp.Handler{Limit: by(sem), Next: http.NotFoundHandler(), Wait: time.Hour}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan int)
		go func() { done <- answer(h, ctx).Code }()
		synctest.Wait()
		if n := waiters(t, sem); n != 1 {
			t.Fatalf("%d wait", n)
		}
		cancel()
		code := <-done
		time.Sleep(time.Second) // a ticket may be spared for the next caller, for a moment
		if code != 503 || waiters(t, sem) != 0 {
			t.Errorf("%d, and %d still wait", code, waiters(t, sem))
		}
		expect.OK(t, p.Release())
	})
}

func TestThePositionInTheQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := memengine.New()
		sem := open(t, e, "x", 1, nil)
		p, err := sem.Acquire(t.Context())
		expect.OK(t, err)
		h := &semahttp.Handler{Limit: by(sem), Next: http.NotFoundHandler(), Wait: time.Second, Position: "Queue-Position"}
		var wg sync.WaitGroup
		ctx, cancel := context.WithCancel(t.Context())
		for range 3 {
			other := open(t, e, "x", 1, nil)
			wg.Go(func() {
				if _, err := other.Acquire(ctx); !errors.Is(err, sema.ErrBusy) {
					t.Error(err)
				}
			})
			time.Sleep(time.Millisecond) // a place in the queue is counted in microseconds
		}
		if got := answer(h, t.Context()).Header().Get("Queue-Position"); got != "4" {
			t.Errorf("behind three: %q", got)
		}
		first := &semahttp.Handler{
			Limit: func(*http.Request) semahttp.Limiter { return semahttp.Of(sem, sema.Priority(time.Hour)) },
			Next:  http.NotFoundHandler(), Wait: time.Second, Position: "Queue-Position",
		}
		if got := answer(first, t.Context()).Header().Get("Queue-Position"); got != "1" {
			t.Errorf("before three: %q", got)
		}
		ignorant := &semahttp.Handler{Limit: limited("fake", sem.Acquire), Next: http.NotFoundHandler(), Wait: time.Second, Position: "Queue-Position"}
		if got := answer(ignorant, t.Context()).Header().Get("Queue-Position"); got != "" {
			t.Errorf("of a limiter that does not know: %q", got)
		}
		cancel()
		wg.Wait()
		time.Sleep(2 * time.Second) // what is known of the queue is old then
		if got := answer(h, t.Context()).Header().Get("Queue-Position"); got != "1" {
			t.Errorf("behind nobody: %q", got)
		}
		expect.OK(t, p.Release())
	})
}

// A request is told its place among those of its key: the others' callers do not go before it.
func TestThePositionInTheQueueOfAKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := memengine.New()
		sem := open(t, e, "x", 1, nil)
		p, err := sem.Acquire(t.Context(), sema.For("acme"))
		expect.OK(t, err)
		names := func(key string) sema.AcquireOption { return sema.For(strings.Split(key, "/")...) }
		var all sync.WaitGroup
		ctx, cancel := context.WithCancel(t.Context())
		for _, key := range []string{"acme", "acme", "acme", "beta", "acme/alice", "acme/bob", "acme/bob"} {
			other := open(t, e, "x", 1, nil)
			all.Go(func() { _, _ = other.Acquire(ctx, names(key)) })
			synctest.Wait()
			time.Sleep(time.Millisecond) // a place in the queue is counted in microseconds
		}
		for key, want := range map[string]string{"acme": "4", "beta": "2", "gamma": "1", "acme/alice": "2", "acme/bob": "3", "acme/carol": "1"} {
			h := &semahttp.Handler{
				Limit: func(*http.Request) semahttp.Limiter { return semahttp.Of(sem, names(key)) }, Next: http.NotFoundHandler(), Wait: time.Second, Position: "Queue-Position",
			}
			if got := answer(h, t.Context()).Header().Get("Queue-Position"); got != want {
				t.Errorf("%s: %q, want %q", key, got, want)
			}
		}
		cancel()
		all.Wait()
		expect.OK(t, p.Release())
	})
}

// looking counts the looks at semaphores.
type looking struct {
	sema.Engine
	looks atomic.Int64
}

func (e *looking) Open(name string, who engine.Client, notify func(protocol.Notification)) (protocol.Session, error) {
	s, err := e.Engine.Open(name, who, notify)
	return &lookingSession{s, e}, err
}

type lookingSession struct {
	protocol.Session
	e *looking
}

func (s *lookingSession) State(ctx context.Context) (sema.State, error) {
	s.e.looks.Add(1)
	return s.Session.State(ctx)
}

// A thousand tenants that are refused at the same time cost the engine one look.
func TestTheKeysShareALook(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := &looking{Engine: memengine.New()}
		sem := open(t, e, "x", 1, nil)
		p, err := sem.Acquire(t.Context(), sema.For("busy"))
		expect.OK(t, err)
		h := &semahttp.Handler{
			Limit: byTenant(sem), Next: http.NotFoundHandler(), Wait: time.Second, Position: "Queue-Position",
		}
		var all sync.WaitGroup
		for i := range 1000 {
			all.Go(func() {
				r := httptest.NewRequest("GET", "/", nil)
				r.Header.Set("Tenant", fmt.Sprint("tenant-", i))
				w := httptest.NewRecorder()
				h.ServeHTTP(w, r)
				if got := w.Header().Get("Queue-Position"); got == "" {
					t.Errorf("tenant %d: %d without a position", i, w.Code)
				}
			})
		}
		all.Wait()
		if n := e.looks.Load(); n != 1 {
			t.Errorf("%d looks", n)
		}
		expect.OK(t, p.Release())
	})
}

func TestErrorsOfALimiter(t *testing.T) {
	for _, c := range []struct {
		err    error
		status int
	}{
		{sema.ErrClosed, 503},
		{&engine.Error{Op: "acquire", Err: errors.New("broken")}, 503},
		{fmt.Errorf("%w: %w", &engine.Error{Op: "acquire"}, context.DeadlineExceeded), 503},
		{fmt.Errorf("%w: %w", sema.ErrBusy, context.DeadlineExceeded), 429},
		{each.ErrTooMany, 429},
		{&sema.WeightError{Name: "x", Weight: 2, Limit: 1}, 413},
		{&sema.ArgumentError{What: "key"}, 400},
		{&sema.LimitError{Name: "x", Stored: 1, Wanted: 2}, 500},
		{errors.New("something else"), 500},
	} {
		h := &semahttp.Handler{Status: 429, Next: http.NotFoundHandler(), Limit: limited("fake", func(context.Context, ...sema.AcquireOption) (*sema.Permit, error) { return nil, c.err })}
		w := answer(h, t.Context())
		if w.Code != c.status || (w.Header().Get("Retry-After") != "") != (c.status == 503 || c.status == 429) {
			t.Errorf("%v: %d, %v; want %d", c.err, w.Code, w.Header(), c.status)
		}
	}
}

func TestTheHandlerHoldsWhileItRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sem := newSem(t, 1)
		h := &semahttp.Handler{Limit: by(sem)}
		h.Next = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if n := used(t, sem); n != 1 {
				t.Errorf("%d held", n)
			}
			if r.URL.Path == "/panic" {
				panic(http.ErrAbortHandler)
			}
		})
		_ = answer(h, t.Context())
		nothingHeld(t, sem)
		func() {
			defer func() {
				if recover() != http.ErrAbortHandler {
					t.Error("the panic was swallowed")
				}
			}()
			h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/panic", nil))
		}()
		nothingHeld(t, sem)
	})
}

func TestALostPermitEndsTheContextOfTheHandler(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sem := newSem(t, 1)
		cause := make(chan error, 1)
		h := &semahttp.Handler{Limit: by(sem)}
		h.Next = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			revoke(t, sem)
			<-r.Context().Done()
			cause <- context.Cause(r.Context())
		})
		_ = answer(h, expect.Within(t))
		expect.Is(t, <-cause, sema.ErrRevoked)
	})
}

// What a server's ResponseWriter can do works through a Handler.
func TestWhatTheServerCanDo(t *testing.T) {
	for _, proto := range []int{1, 2} {
		t.Run(fmt.Sprintf("HTTP/%d", proto), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				sem, goOn := newSem(t, 1), make(chan struct{})
				h := &semahttp.Handler{Limit: by(sem)}
				h.Next = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					rc := http.NewResponseController(w)
					if err := errors.Join(rc.SetReadDeadline(time.Now().Add(time.Hour)), rc.SetWriteDeadline(time.Now().Add(time.Hour)), rc.EnableFullDuplex()); err != nil && proto == 1 {
						t.Error(err)
					}
					w.Header().Set("Trailer", "Sum")
					_, err := io.WriteString(w, "first ")
					expect.OK(t, err)
					expect.OK(t, rc.Flush())
					<-goOn
					_, err = io.Copy(w, strings.NewReader("second"))
					expect.OK(t, err)
					w.(http.Flusher).Flush()
					w.Header().Set("Sum", "1")
					_, reads := w.(io.ReaderFrom)
					if _, hijacks := w.(http.Hijacker); hijacks != (proto == 1) || reads != (proto == 1) {
						t.Errorf("%T: Hijacker %v, ReaderFrom %v", w, hijacks, reads)
					}
				})
				u, base := serveTLS(t, h, proto == 2)
				resp := get(t, base, expect.Within(t), u)
				defer func() { _ = resp.Body.Close() }()
				first := make([]byte, 6)
				_, err := io.ReadFull(resp.Body, first)
				expect.OK(t, err)
				close(goOn)
				if rest := read(t, resp.Body); string(first)+rest != "first second" || resp.ProtoMajor != proto || resp.Trailer.Get("Sum") != "1" {
					t.Errorf("%s: %q, %v", resp.Proto, string(first)+rest, resp.Trailer)
				}
				expect.Until(t, "the permit is back", func() bool { return used(t, sem) == 0 })
			})
		})
	}
}

// writers of middleware between the server and a Handler.
type (
	plain   struct{ http.ResponseWriter }
	flushes struct {
		http.ResponseWriter
		http.Flusher
	}
	reads struct {
		plain
		io.ReaderFrom
	}
)

func (w plain) Unwrap() http.ResponseWriter   { return w.ResponseWriter }
func (w flushes) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func TestMiddlewareBetween(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sem := newSem(t, 1)
		for _, c := range []struct {
			what         string
			wrap         func(w http.ResponseWriter) http.ResponseWriter
			flush, reads bool
		}{
			{"plain", func(w http.ResponseWriter) http.ResponseWriter { return plain{w} }, false, false},
			{"with Flusher", func(w http.ResponseWriter) http.ResponseWriter { return flushes{w, w.(http.Flusher)} }, true, false},
			{"with ReaderFrom", func(w http.ResponseWriter) http.ResponseWriter { return reads{plain{w}, w.(io.ReaderFrom)} }, false, true},
		} {
			h, served := &semahttp.Handler{Limit: by(sem)}, make(chan struct{})
			h.Next = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				defer close(served)
				_, f := w.(http.Flusher)
				_, rf := w.(io.ReaderFrom)
				if f != c.flush || rf != c.reads {
					t.Errorf("%s: Flusher %v, ReaderFrom %v", c.what, f, rf)
				}
				if conn, _, err := http.NewResponseController(w).Hijack(); err != nil {
					t.Errorf("%s: %v", c.what, err)
				} else if used(t, sem) != 1 || conn.Close() != nil || used(t, sem) != 0 {
					t.Errorf("%s: the permit is not the connection's", c.what)
				}
			})
			u := serve(t, func(w http.ResponseWriter, r *http.Request) { h.ServeHTTP(c.wrap(w), r) })
			if resp, err := connections(t).RoundTrip(request(t, expect.Within(t), u)); err == nil {
				t.Errorf("%s: %s", c.what, resp.Status)
			}
			<-served
		}
		// One that says it can be hijacked, and cannot.
		h := &semahttp.Handler{Limit: by(sem)}
		h.Next = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if _, _, err := http.NewResponseController(w).Hijack(); !errors.Is(err, http.ErrNotSupported) {
				t.Errorf("hijacking: %v", err)
			}
		})
		h.ServeHTTP(struct {
			http.ResponseWriter
			http.Hijacker
		}{httptest.NewRecorder(), http.NewResponseController(httptest.NewRecorder())}, httptest.NewRequest(http.MethodGet, "/", nil))
		nothingHeld(t, sem)
	})
}

// The server removes the files of a form that was parsed from the request that
// it knows, not from its copies.
func TestFilesOfAFormAreRemoved(t *testing.T) {
	sem := newSem(t, 1)
	name := make(chan string, 1)
	h := &semahttp.Handler{Limit: by(sem)}
	h.Next = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		expect.OK(t, r.ParseMultipartForm(1))
		f, err := r.MultipartForm.File["f"][0].Open()
		expect.OK(t, err)
		name <- f.(*os.File).Name()
		expect.OK(t, f.Close())
	})
	body := &bytes.Buffer{}
	form := multipart.NewWriter(body)
	part, err := form.CreateFormFile("f", "f.bin")
	expect.OK(t, err)
	_, err = part.Write(make([]byte, 11<<20)) // more than is kept in memory
	expect.OK(t, err)
	expect.OK(t, form.Close())
	resp, err := (&http.Client{Transport: connections(t)}).Post(serve(t, h.ServeHTTP), form.FormDataContentType(), body)
	expect.OK(t, err)
	_ = read(t, resp.Body)
	file := <-name
	expect.Until(t, "the file is removed", func() bool { _, err := os.Stat(file); return errors.Is(err, os.ErrNotExist) })
}
