package metrics_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"sema"
	"sema/engine"
	"sema/engines/memengine"
	"sema/internal/fixture/expect"
	"sema/internal/fixture/opened"
	"sema/metrics"
)

// value is the figure of a series, given as Prometheus shows it.
func value(t *testing.T, text, series string) string {
	t.Helper()
	for line := range strings.Lines(text) {
		if found, ok := strings.CutPrefix(line, series+" "); ok {
			return strings.TrimSuffix(found, "\n")
		}
	}
	t.Fatalf("no series %s in\n%s", series, text)
	return ""
}

func text(t *testing.T, sources ...metrics.Source) string {
	t.Helper()
	var b strings.Builder
	expect.OK(t, metrics.WriteText(t.Context(), &b, sources...))
	return b.String()
}

func wants(t *testing.T, text string, want map[string]string) {
	t.Helper()
	for series, v := range want {
		if got := value(t, text, series); got != v {
			t.Errorf("%s is %s, want %s", series, got, v)
		}
	}
}

func recorder(t *testing.T, o *metrics.Options) *metrics.Recorder {
	t.Helper()
	r, err := metrics.NewRecorder(o)
	expect.OK(t, err)
	return r
}

// semaphore is open until the test ends.
var semaphore = opened.Semaphore

// operator is for operators of a semaphore.
var operator = opened.Operator

func take(t *testing.T, s *sema.Semaphore) *sema.Permit {
	t.Helper()
	p, err := s.Acquire(t.Context())
	expect.OK(t, err)
	return p
}

func TestRecorderCountsWhatCallersExperience(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := memengine.New()
		t.Cleanup(func() { _ = e.Close() })
		r := recorder(t, nil)
		var mu sync.Mutex
		told := map[string]int{}
		tell := func(what string) { mu.Lock(); told[what]++; mu.Unlock() }
		s := semaphore(t, e, "llm", 1, &sema.Options{MaxHold: 20 * time.Second, Observer: r.Observer().And(sema.Observer{
			Queued:    func(sema.Event) { tell("queued") },
			Acquired:  func(sema.Event) { tell("acquired") },
			Failed:    func(sema.Event) { tell("failed") },
			Released:  func(sema.Event) { tell("released") },
			Lost:      func(sema.Event) { tell("lost") },
			Abandoned: func(sema.Event) { tell("abandoned") },
		})})
		p := take(t, s)
		if _, err := s.TryAcquire(t.Context()); !errors.Is(err, sema.ErrBusy) {
			t.Fatal(err)
		}
		if _, err := s.Acquire(t.Context(), sema.Weight(2)); err == nil {
			t.Fatal("a weight above the limit was granted")
		}
		short, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := s.Acquire(short); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatal(err)
		}
		gone, leave := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, leave)
		if _, err := s.Acquire(gone); !errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
		time.AfterFunc(3*time.Second, func() { _ = p.Release() })
		p = take(t, s) // after a wait of 3 s
		expect.OK(t, operator(t, e, "llm").Revoke(t.Context(), p.ID()))
		<-p.Context(t.Context()).Done()
		_ = p.Release()
		p = take(t, s)
		<-p.Context(t.Context()).Done() // held too long
		_ = p.Release()
		_ = s.Close()
		if _, err := s.Acquire(t.Context()); !errors.Is(err, sema.ErrClosed) {
			t.Fatal(err)
		}
		synctest.Wait() // contexts end before observers are told
		wants(t, text(t, r), map[string]string{
			`sema_acquires_total{sema_name="llm",result="acquired"}`:         "3",
			`sema_acquires_total{sema_name="llm",result="refused"}`:          "1",
			`sema_acquires_total{sema_name="llm",result="invalid"}`:          "1",
			`sema_acquires_total{sema_name="llm",result="timeout"}`:          "1",
			`sema_acquires_total{sema_name="llm",result="canceled"}`:         "1",
			`sema_acquires_total{sema_name="llm",result="closed"}`:           "1",
			`sema_acquires_total{sema_name="llm",result="failed"}`:           "0",
			`sema_acquire_wait_seconds_count{sema_name="llm"}`:               "3",
			`sema_acquire_wait_seconds_sum{sema_name="llm"}`:                 "3",
			`sema_acquire_wait_seconds_bucket{sema_name="llm",le="0.001"}`:   "2",
			`sema_acquire_wait_seconds_bucket{sema_name="llm",le="1"}`:       "2",
			`sema_acquire_wait_seconds_bucket{sema_name="llm",le="5"}`:       "3",
			`sema_acquire_wait_seconds_bucket{sema_name="llm",le="+Inf"}`:    "3",
			`sema_lease_duration_seconds_count{sema_name="llm"}`:             "3",
			`sema_leases_lost_total{sema_name="llm",reason="revoked"}`:       "1",
			`sema_leases_lost_total{sema_name="llm",reason="held_too_long"}`: "1",
			`sema_leases_lost_total{sema_name="llm",reason="expired"}`:       "0",
			`sema_leases_lost_total{sema_name="llm",reason="abandoned"}`:     "0",
		})
		mu.Lock()
		defer mu.Unlock()
		for what, n := range map[string]int{"acquired": 3, "failed": 5, "released": 1, "lost": 2} {
			if told[what] != n {
				t.Errorf("the user's own observer was told %q %d times, want %d", what, told[what], n)
			}
		}
		if told["queued"] == 0 {
			t.Error("the user's own observer was never told of a wait")
		}
	})
}

func TestRecorderCountsFailuresOfTheEngine(t *testing.T) {
	for err, want := range map[error]string{
		&engine.Error{Op: "acquire", Err: errors.New("refused")}:                      "failed",
		fmt.Errorf("%w: %w", context.DeadlineExceeded, &engine.Error{Op: "acquire"}):  "failed",
		fmt.Errorf("%w: %w", sema.ErrBusy, context.DeadlineExceeded):                  "timeout",
		fmt.Errorf("%w: %w: %w", sema.ErrBusy, context.Canceled, errors.New("a why")): "canceled",
		&sema.LimitError{Name: "n", Stored: 1, Wanted: 2}:                             "invalid",
		errors.New("something else"):                                                  "failed",
	} {
		if got := metrics.ResultOf(err); got != want {
			t.Errorf("ResultOf(%v) is %q, want %q", err, got, want)
		}
	}
	metrics.Observer(nil, func(_, reason string, _ time.Duration) {
		if reason != "expired" {
			t.Errorf("the reason of ErrLost is %q", reason)
		}
	}).Lost(sema.Event{Err: sema.ErrLost})
}

func TestNamesAreBounded(t *testing.T) {
	r := recorder(t, &metrics.Options{Names: 2})
	o := r.Observer()
	for i := range 10_000 {
		o.Acquired(sema.Event{Semaphore: fmt.Sprint("tenant-", i)})
	}
	o.Acquired(sema.Event{Semaphore: "tenant-1"})
	got := text(t, r)
	wants(t, got, map[string]string{
		`sema_acquires_total{sema_name="tenant-0",result="acquired"}`: "1",
		`sema_acquires_total{sema_name="tenant-1",result="acquired"}`: "2",
		`sema_acquires_total{sema_name="_other",result="acquired"}`:   "9998",
	})
	if n := strings.Count(got, `result="acquired"`); n != 3 {
		t.Errorf("%d series of acquired, want 3", n)
	}
}

func TestNamesAreGrouped(t *testing.T) {
	r := recorder(t, &metrics.Options{Names: 1, Group: func(name string) string {
		group, _, _ := strings.Cut(name, "/")
		return group + "\xff"
	}})
	o := r.Observer()
	for i := range 100 {
		o.Failed(sema.Event{Semaphore: fmt.Sprint("llm/", i), Err: sema.ErrBusy})
	}
	o.Acquired(sema.Event{Semaphore: "llm/1", WouldWait: true})
	wants(t, text(t, r), map[string]string{"sema_acquires_total{sema_name=\"llm\uFFFD\",result=\"refused\"}": "100", "sema_acquires_total{sema_name=\"llm\uFFFD\",result=\"would_wait\"}": "1"})
}

func TestLabelsAreEscaped(t *testing.T) {
	r := recorder(t, nil)
	r.Observer().Acquired(sema.Event{Semaphore: "a\"} 1\nb\\"})
	wants(t, text(t, r), map[string]string{`sema_acquires_total{sema_name="a\"} 1\nb\\",result="acquired"}`: "1"})
}

func TestValuesOutOfRangeAreRefused(t *testing.T) {
	for _, o := range []*metrics.Options{
		nil, {}, {Names: 1}, {Names: 100_000}, {Bounds: []float64{}}, {Bounds: []float64{math.SmallestNonzeroFloat64, math.MaxFloat64}},
	} {
		if _, err := metrics.NewRecorder(o); err != nil {
			t.Errorf("%+v: %v", o, err)
		}
	}
	for _, o := range []metrics.Options{
		{Names: -1}, {Names: math.MinInt}, {Names: 100_000 + 1}, {Bounds: []float64{0}}, {Bounds: []float64{-1}},
		{Bounds: []float64{1, 1}}, {Bounds: []float64{2, 1}}, {Bounds: []float64{1, math.NaN()}}, {Bounds: []float64{1, math.Inf(1)}},
	} {
		_, err := metrics.NewRecorder(&o)
		var argument *sema.ArgumentError
		if !errors.As(err, &argument) || !strings.HasPrefix(err.Error(), "metrics: ") {
			t.Errorf("%+v: %v, want an ArgumentError of metrics", o, err)
		}
	}
}

func TestHandler(t *testing.T) {
	r := recorder(t, nil)
	h := metrics.Handler(r)
	ask := func(method string) *httptest.ResponseRecorder {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(method, "/metrics", nil))
		return w
	}
	if w := ask(http.MethodGet); w.Code != http.StatusOK || w.Body.Len() != 0 {
		t.Errorf("nothing to tell: status %d, body %q", w.Code, w.Body)
	}
	r.Observer().Released(sema.Event{Semaphore: "n", Held: time.Minute})
	w := ask(http.MethodGet)
	if got := w.Header().Get("Content-Type"); got != "text/plain; version=0.0.4; charset=utf-8" {
		t.Errorf("content type %q", got)
	}
	wants(t, w.Body.String(), map[string]string{`sema_lease_duration_seconds_sum{sema_name="n"}`: "60"})
	if w := ask(http.MethodPost); w.Code != http.StatusMethodNotAllowed || w.Header().Get("Allow") != "GET, HEAD" {
		t.Errorf("POST: status %d, Allow %q", w.Code, w.Header().Get("Allow"))
	}
}

func TestRecorderIsSafeForConcurrentUse(t *testing.T) {
	r := recorder(t, &metrics.Options{Names: 3})
	o := r.Observer()
	var g sync.WaitGroup
	for i := range 8 {
		g.Go(func() {
			for j := range 500 {
				name := fmt.Sprint(j % (i + 1))
				o.Acquired(sema.Event{Semaphore: name})
				o.Lost(sema.Event{Semaphore: name, Err: sema.ErrRevoked})
				if j%100 == 0 {
					r.Families(t.Context())
				}
			}
		})
	}
	g.Wait()
	sum := 0.0
	for _, f := range r.Families(t.Context()) {
		for _, s := range f.Series {
			if f.Name == metrics.LeasesLost {
				sum += s.Value
			}
		}
	}
	if sum != 8*500 {
		t.Errorf("%v permits lost, want 4000", sum)
	}
}

func BenchmarkObserver(b *testing.B) {
	r, err := metrics.NewRecorder(nil)
	expect.OK(b, err)
	o := r.Observer()
	name := "llm"
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			o.Acquired(sema.Event{Semaphore: name, Waited: time.Millisecond})
			o.Released(sema.Event{Semaphore: name, Held: time.Second})
		}
	})
}

// BenchmarkAcquire is an acquisition in memory, with a Recorder and without.
func BenchmarkAcquire(b *testing.B) {
	r, err := metrics.NewRecorder(nil)
	expect.OK(b, err)
	for name, o := range map[string]sema.Observer{"bare": {}, "recorded": r.Observer()} {
		b.Run(name, func(b *testing.B) {
			e := memengine.New()
			defer func() { _ = e.Close() }()
			s, err := sema.New(e, "llm", 1, &sema.Options{Observer: o})
			expect.OK(b, err)
			defer func() { _ = s.Close() }()
			b.ReportAllocs()
			for b.Loop() {
				p, err := s.Acquire(b.Context())
				expect.OK(b, err)
				_ = p.Release()
			}
		})
	}
}

// BenchmarkScrape is a scrape with so many names.
func BenchmarkScrape(b *testing.B) {
	for _, n := range []int{1, 200, 10_000} {
		r, err := metrics.NewRecorder(&metrics.Options{Names: n})
		expect.OK(b, err)
		o := r.Observer()
		for i := range n {
			o.Acquired(sema.Event{Semaphore: fmt.Sprint("tenant-", i)})
		}
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			var text strings.Builder
			for b.Loop() {
				text.Reset()
				_ = metrics.WriteText(b.Context(), &text, r)
			}
			b.ReportMetric(float64(text.Len()), "bytes/scrape")
		})
	}
}
