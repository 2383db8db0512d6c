package promsema_test

import (
	"context"
	"errors"
	"fmt"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/testutil"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"google.golang.org/protobuf/proto"

	"sema"
	"sema/contrib/prometheus"
	"sema/engines/memengine"
	"sema/metrics"
	"sema/server"
)

// must ends the test if there is an error.
func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// busy is a recorder that has seen everything.
func busy(t *testing.T) *metrics.Recorder {
	t.Helper()
	r, err := metrics.NewRecorder(nil)
	must(t, err)
	o := r.Observer()
	for _, name := range []string{"llm", "a \"quoted\"\nname\\ with everything, {} # 1 \u2603", strings.Repeat("x", 255)} {
		for _, d := range []time.Duration{-time.Microsecond, 0, time.Millisecond, 333 * time.Millisecond, time.Second, 100 * time.Hour} {
			o.Acquired(sema.Event{Semaphore: name, Waited: d})
			o.Released(sema.Event{Semaphore: name, Held: d})
		}
		o.Failed(sema.Event{Semaphore: name, Err: sema.ErrBusy})
		o.Lost(sema.Event{Semaphore: name, Err: sema.ErrRevoked, Held: time.Hour})
	}
	return r
}

// source is one as a metrics.Watch is one.
type source []metrics.Family

func (s source) Families(context.Context) []metrics.Family { return s }

func gauges() source {
	var all source
	for i, name := range []string{metrics.Limit, metrics.LeasesActive, metrics.QueueSize, metrics.QueueOldest, metrics.KeysInTurn, metrics.KeysFull, metrics.LeasesReclaimed, metrics.PoolLimit, metrics.PoolUsed, metrics.PoolWaiting} {
		f := metrics.Of(name, nil)
		f.Series = []metrics.Series{{Labels: []metrics.Label{{Name: metrics.LabelName, Value: "llm"}}, Value: 1.5 + float64(i)}}
		all = append(all, f)
	}
	return all
}

func gather(t *testing.T, sources ...metrics.Source) []*dto.MetricFamily {
	t.Helper()
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(promsema.Collector(sources...))
	families, err := registry.Gather()
	must(t, err)
	return families
}

// The text that package metrics writes by itself is, to Prometheus' own parser,
// what its client library would have gathered.
func TestTextIsWhatTheClientGathers(t *testing.T) {
	r := busy(t)
	var text strings.Builder
	must(t, metrics.WriteText(t.Context(), &text, r, gauges()))
	parser := expfmt.NewTextParser(model.UTF8Validation)
	parsed, err := parser.TextToMetricFamilies(strings.NewReader(text.String()))
	if err != nil {
		t.Fatalf("%v in\n%s", err, text.String())
	}
	gathered := gather(t, r, gauges())
	if len(gathered) != 14 || len(parsed) != 14 {
		t.Errorf("%d metrics gathered, %d parsed, want 14", len(gathered), len(parsed))
	}
	for _, want := range gathered {
		got := parsed[want.GetName()]
		if got == nil {
			t.Errorf("the text has no %s", want.GetName())
			continue
		}
		for _, f := range []*dto.MetricFamily{got, want} {
			for _, m := range f.Metric { // the client sorts labels by name
				slices.SortFunc(m.Label, func(a, b *dto.LabelPair) int { return strings.Compare(a.GetName(), b.GetName()) })
			}
			slices.SortFunc(f.Metric, func(a, b *dto.Metric) int { return strings.Compare(fmt.Sprint(a.Label), fmt.Sprint(b.Label)) })
			for _, m := range f.Metric {
				if h := m.Histogram; h != nil { // the text names what the client leaves out
					h.CreatedTimestamp = nil
					h.Bucket = slices.DeleteFunc(h.Bucket, func(b *dto.Bucket) bool {
						return b.GetCumulativeCount() == h.GetSampleCount() && b.GetUpperBound() > 1e300
					})
				}
			}
		}
		if !proto.Equal(got, want) {
			t.Errorf("the text has\n%.3000v\nthe client gathers\n%.3000v", got, want)
		}
	}
}

func TestNamesFollowThePractice(t *testing.T) {
	problems, err := testutil.CollectAndLint(promsema.Collector(busy(t), gauges()))
	must(t, err)
	for _, p := range problems {
		t.Errorf("%s: %s", p.Metric, p.Text)
	}
}

// badLabels has a label twice.
func badLabels() source {
	f := metrics.Of(metrics.Limit, nil)
	l := metrics.Label{Name: metrics.LabelName, Value: "llm"}
	f.Series = []metrics.Series{{Labels: []metrics.Label{l, l}}}
	return source{f}
}

func TestBadSeriesAreAnErrorOfTheScrape(t *testing.T) {
	for what, s := range map[string][]metrics.Source{"labels": {badLabels()}, "twice": {gauges(), gauges()}} {
		registry := prometheus.NewRegistry()
		registry.MustRegister(promsema.Collector(s...))
		if _, err := registry.Gather(); err == nil {
			t.Errorf("%s: gathered without an error", what)
		}
	}
}

func Example() {
	recorder, err := metrics.NewRecorder(nil)
	if err != nil {
		panic(err)
	}
	registry := prometheus.NewRegistry()
	registry.MustRegister(promsema.Collector(recorder))
	e := memengine.New()
	defer func() { _ = e.Close() }()
	sem, err := sema.New(e, "llm", 1, &sema.Options{Observer: recorder.Observer()})
	if err != nil {
		panic(err)
	}
	defer func() { _ = sem.Close() }()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	permit, err := sem.Acquire(ctx)
	if err != nil {
		panic(err)
	}
	if _, err := sem.TryAcquire(ctx); !errors.Is(err, sema.ErrBusy) {
		panic(err)
	}
	if err := permit.Release(); err != nil {
		panic(err)
	}
	families, err := registry.Gather()
	if err != nil {
		panic(err)
	}
	for _, f := range families {
		for _, m := range f.Metric {
			if m.Counter != nil && m.Counter.GetValue() > 0 {
				fmt.Println(f.GetName(), m.Label[0].GetValue(), m.Label[1].GetValue(), m.Counter.GetValue())
			}
		}
	}
	// Output:
	// sema_acquires_total acquired llm 1
	// sema_acquires_total refused llm 1
}

// A server's figures of itself are read by Prometheus' parser, and those of its process
// have the names that Prometheus' own client gives them.
func TestServersFigures(t *testing.T) {
	e := memengine.New()
	s, err := server.New(e, nil)
	must(t, err)
	t.Cleanup(func() { s.Close(); _ = e.Close() })
	put := httptest.NewRequest("PUT", "http://localhost/v1/semaphores/x/permits/a", strings.NewReader(`{"limit":1}`))
	put.Header.Set("Content-Type", "application/json")
	s.ServeHTTP(httptest.NewRecorder(), put)
	var text strings.Builder
	must(t, metrics.WriteText(t.Context(), &text, s, metrics.Process()))
	parser := expfmt.NewTextParser(model.UTF8Validation)
	parsed, err := parser.TextToMetricFamilies(strings.NewReader(text.String()))
	if err != nil {
		t.Fatalf("%v in\n%s", err, text.String())
	}
	problems, err := testutil.CollectAndLint(promsema.Collector(s))
	must(t, err)
	for _, p := range problems {
		t.Errorf("%s: %s", p.Metric, p.Text)
	}
	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	theirs, err := registry.Gather()
	must(t, err)
	kinds := map[string]string{}
	for _, f := range theirs {
		kinds[f.GetName()] = f.GetType().String()
	}
	for name, f := range parsed {
		own := strings.HasPrefix(name, "sema_") || strings.HasPrefix(name, "go_gc_") // theirs is a summary
		if !own && kinds[name] != f.GetType().String() {
			t.Errorf("%s is a %v; the client of Prometheus has a %q of this name", name, f.GetType(), kinds[name])
		}
	}
}
