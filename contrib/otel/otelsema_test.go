package otelsema_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"
	"go.uber.org/goleak"

	"sema"
	"sema/contrib/otel"
	"sema/each"
	"sema/engines/memengine"
	"sema/metrics"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// must ends the test if there is an error.
func must(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}

// patience bounds every wait of a test.
const patience = time.Minute

// until waits until something is so that no event tells.
func until(tb testing.TB, what string, ok func() bool) {
	tb.Helper()
	for began := time.Now(); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Since(began) > patience {
			tb.Fatalf("%s: not so after %v", what, patience)
		}
	}
}

// sdk is OpenTelemetry with everything in memory.
type sdk struct {
	operator  *sema.Operator
	t         *testing.T
	reader    *sdkmetric.ManualReader
	spans     *tracetest.SpanRecorder
	tracer    trace.Tracer
	telemetry *otelsema.Telemetry
}

func newSDK(t *testing.T) *sdk {
	t.Helper()
	x := &sdk{t: t, reader: sdkmetric.NewManualReader(), spans: tracetest.NewSpanRecorder()}
	meters := sdkmetric.NewMeterProvider(sdkmetric.WithReader(x.reader))
	tracers := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(x.spans))
	x.tracer = tracers.Tracer("test")
	t.Cleanup(func() {
		if err := errors.Join(meters.Shutdown(context.Background()), tracers.Shutdown(context.Background())); err != nil {
			t.Error(err)
		}
	})
	var err error
	if x.telemetry, err = otelsema.New(&otelsema.Options{MeterProvider: meters, TracerProvider: tracers, Names: 2}); err != nil {
		t.Fatal(err)
	}
	return x
}

func (x *sdk) semaphore(limit int) *sema.Semaphore {
	x.t.Helper()
	e := memengine.New()
	s, err := sema.New(e, "llm", limit, &sema.Options{Observer: x.telemetry.Observer()})
	must(x.t, err)
	if x.operator, err = sema.Operate(e, "llm"); err != nil {
		x.t.Fatal(err)
	}
	x.t.Cleanup(func() { _, _, _ = s.Close(), x.operator.Close(), e.Close() })
	return s
}

// metric is what the SDK would send of one metric.
func (x *sdk) metric(name string) metricdata.Metrics {
	x.t.Helper()
	var all metricdata.ResourceMetrics
	must(x.t, x.reader.Collect(context.Background(), &all))
	for _, scope := range all.ScopeMetrics {
		for _, m := range scope.Metrics {
			if m.Name == name {
				if scope.Scope.Name != otelsema.Scope {
					x.t.Errorf("%s has scope %q", name, scope.Scope.Name)
				}
				return m
			}
		}
	}
	x.t.Fatalf("no metric %s in %+v", name, all)
	return metricdata.Metrics{}
}

func (x *sdk) sum(name string, attributes ...attribute.KeyValue) int64 {
	x.t.Helper()
	sum, ok := x.metric(name).Data.(metricdata.Sum[int64])
	if !ok {
		x.t.Fatalf("%s is no sum of integers", name)
	}
	want := attribute.NewSet(attributes...)
	for _, p := range sum.DataPoints {
		if p.Attributes.Equals(&want) {
			return p.Value
		}
	}
	x.t.Fatalf("%s has no point %v: %+v", name, attributes, sum.DataPoints)
	return 0
}

func (x *sdk) histogram(name string) metricdata.HistogramDataPoint[float64] {
	x.t.Helper()
	m := x.metric(name)
	h, ok := m.Data.(metricdata.Histogram[float64])
	if !ok || len(h.DataPoints) != 1 || m.Unit != "s" {
		x.t.Fatalf("%s is not one histogram of seconds: %+v", name, m)
	}
	return h.DataPoints[0]
}

var llm = attribute.String("sema.name", "llm")

func TestMetrics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := newSDK(t)
		s := x.semaphore(1)
		p, err := s.Acquire(t.Context())
		must(t, err)
		if _, err := s.TryAcquire(t.Context()); !errors.Is(err, sema.ErrBusy) {
			t.Fatal(err)
		}
		must(t, p.Release())
		if p, err = s.Acquire(t.Context()); err != nil {
			t.Fatal(err)
		}
		must(t, x.operator.Revoke(t.Context(), p.ID()))
		<-p.Context(t.Context()).Done()
		_ = p.Release()
		synctest.Wait() // contexts end before observers are told
		for result, want := range map[string]int64{"acquired": 2, "refused": 1} {
			if got := x.sum(metrics.Acquires, llm, attribute.String("result", result)); got != want {
				t.Errorf("%s: %d, want %d", result, got, want)
			}
		}
		if got := x.sum(metrics.LeasesLost, llm, attribute.String("reason", "revoked")); got != 1 {
			t.Errorf("%d permits revoked, want 1", got)
		}
		for name, want := range map[string]uint64{metrics.AcquireWait: 2, metrics.LeaseDuration: 2} {
			if h := x.histogram(name); h.Count != want || len(h.Bounds) != len(metrics.DefaultBounds()) {
				t.Errorf("%s: %+v, want %d values", name, h, want)
			}
		}
	})
}

func TestNamesAreBounded(t *testing.T) {
	x := newSDK(t) // two names
	o := x.telemetry.Observer()
	for _, name := range []string{"a", "b", "c", "d", "a"} {
		o.Acquired(sema.Event{Semaphore: name})
	}
	for name, want := range map[string]int64{"a": 2, "b": 1, metrics.Other: 2} {
		if got := x.sum(metrics.Acquires, attribute.String("sema.name", name), attribute.String("result", "acquired")); got != want {
			t.Errorf("%s: %d, want %d", name, got, want)
		}
	}
}

// engineSource is a source as a metrics.Watch is one.
type engineSource struct{}

func (engineSource) Families(context.Context) (all []metrics.Family) {
	for name, v := range map[string]float64{
		metrics.Limit: 5, metrics.LeasesActive: 3, metrics.QueueSize: 2, metrics.QueueOldest: 1.5, metrics.KeysInTurn: 4, metrics.KeysFull: 6, metrics.LeasesReclaimed: 7, metrics.PoolLimit: 8, metrics.PoolUsed: 9, metrics.PoolWaiting: 10,
	} {
		f := metrics.Of(name, nil)
		f.Series = []metrics.Series{{Labels: []metrics.Label{{Name: metrics.LabelName, Value: "llm"}}, Value: v}}
		all = append(all, f)
	}
	up := metrics.Of(metrics.EngineUp, nil)
	up.Series = []metrics.Series{{Value: 1}}
	return append(all, up)
}

func TestObserve(t *testing.T) {
	x := newSDK(t)
	registration, err := x.telemetry.Observe(engineSource{})
	must(t, err)
	for name, want := range map[string]int64{metrics.Limit: 5, metrics.LeasesActive: 3, metrics.QueueSize: 2, metrics.KeysInTurn: 4, metrics.KeysFull: 6, metrics.LeasesReclaimed: 7, metrics.PoolLimit: 8, metrics.PoolUsed: 9, metrics.PoolWaiting: 10} {
		if got := x.sum(name, llm); got != want {
			t.Errorf("%s: %d, want %d", name, got, want)
		}
	}
	oldest, ok := x.metric(metrics.QueueOldest).Data.(metricdata.Gauge[float64])
	if !ok || len(oldest.DataPoints) != 1 || oldest.DataPoints[0].Value != 1.5 {
		t.Errorf("oldest: %+v", oldest)
	}
	if up, ok := x.metric(metrics.EngineUp).Data.(metricdata.Gauge[float64]); !ok || len(up.DataPoints) != 1 || up.DataPoints[0].Value != 1 || up.DataPoints[0].Attributes.Len() != 0 {
		t.Errorf("up: %+v", up)
	}
	must(t, registration.Unregister())
}

func TestSpans(t *testing.T) {
	x := newSDK(t)
	s := x.semaphore(1)
	ctx, job := x.tracer.Start(t.Context(), "job")
	if err := x.telemetry.Do(ctx, s, func(ctx context.Context) error {
		_, work := x.tracer.Start(ctx, "work")
		work.End()
		_, err := x.telemetry.Acquire(ctx, s, sema.WaitAtMost(0))
		return err
	}); !errors.Is(err, sema.ErrBusy) {
		t.Fatal(err)
	}
	job.End()
	spans := map[string][]sdktrace.ReadOnlySpan{}
	for _, span := range x.spans.Ended() {
		spans[span.Name()] = append(spans[span.Name()], span)
	}
	if len(spans[otelsema.SpanAcquire]) != 2 || len(spans[otelsema.SpanHold]) != 1 {
		t.Fatalf("spans: %v", spans)
	}
	wait, refused, hold := spans[otelsema.SpanAcquire][0], spans[otelsema.SpanAcquire][1], spans[otelsema.SpanHold][0]
	for span, parent := range map[sdktrace.ReadOnlySpan]trace.SpanContext{
		wait: job.SpanContext(), hold: job.SpanContext(), refused: hold.SpanContext(), spans["work"][0]: hold.SpanContext(),
	} {
		if !span.Parent().Equal(parent) {
			t.Errorf("%s is not where it belongs", span.Name())
		}
	}
	has := func(span sdktrace.ReadOnlySpan, want attribute.KeyValue) {
		t.Helper()
		for _, a := range span.Attributes() {
			if a == want {
				return
			}
		}
		t.Errorf("%s has not %v but %v", span.Name(), want, span.Attributes())
	}
	has(wait, llm)
	has(wait, attribute.String(otelsema.AttributeResult, "acquired"))
	has(wait, attribute.Int(otelsema.AttributeWeight, 1))
	has(refused, attribute.String(otelsema.AttributeResult, "refused"))
	has(hold, llm)
	if wait.Status().Code != codes.Unset || refused.Status().Code != codes.Error || hold.Status().Code != codes.Unset {
		t.Errorf("statuses: %v, %v, %v", wait.Status(), refused.Status(), hold.Status())
	}
	if wait.EndTime().After(hold.StartTime()) {
		t.Error("the wait ends after the hold began")
	}
}

// A key that is full has a span for the try, and none for a hold.
func TestSpansOfATryForAKey(t *testing.T) {
	x := newSDK(t)
	e := memengine.New()
	defer func() { _ = e.Close() }()
	group, err := each.New(e, "tenants", 1, nil)
	must(t, err)
	defer func() { _ = group.Close() }()
	p, err := x.telemetry.AcquireEach(t.Context(), group, "acme", sema.WaitAtMost(0))
	must(t, err)
	if _, err := x.telemetry.AcquireEach(t.Context(), group, "acme", sema.WaitAtMost(0)); !errors.Is(err, sema.ErrBusy) {
		t.Error(err)
	}
	if err := p.Release(); err != nil {
		t.Error(err)
	}
	var got []string
	for _, span := range x.spans.Ended() {
		for _, a := range span.Attributes() {
			if a.Key == otelsema.AttributeResult {
				got = append(got, a.Value.AsString())
			}
		}
	}
	if n := len(x.spans.Ended()); n != 3 || !slices.Equal(got, []string{"acquired", "refused"}) {
		t.Errorf("%d spans, results %v; want a hold and two tries, the second refused", n, got)
	}
}

func TestSpanOfALostPermit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := newSDK(t)
		s := x.semaphore(1)
		p, err := x.telemetry.Acquire(t.Context(), s)
		must(t, err)
		must(t, x.operator.Revoke(t.Context(), p.ID()))
		<-p.Context(t.Context()).Done()
		for range 2 { // releasing twice ends the span once
			if err := p.Release(); err == nil {
				t.Fatal("a lost permit was released")
			}
		}
		ended := x.spans.Ended()
		if last := ended[len(ended)-1]; len(ended) != 2 || last.Name() != otelsema.SpanHold || last.Status().Code != codes.Error {
			t.Errorf("spans: %v", ended)
		}
	})
}

func TestValuesOutOfRangeAreRefused(t *testing.T) {
	for _, o := range []otelsema.Options{{Names: -1}, {Bounds: []float64{2, 1}}} {
		_, err := otelsema.New(&o)
		var argument *sema.ArgumentError
		if !errors.As(err, &argument) {
			t.Errorf("%+v: %v, want an ArgumentError", o, err)
		}
	}
}

func ExampleTelemetry_Do() {
	telemetry, err := otelsema.New(nil) // the global providers
	if err != nil {
		panic(err)
	}
	e := memengine.New()
	defer func() { _ = e.Close() }()
	sem, err := sema.New(e, "llm", 5, &sema.Options{Lease: 10 * time.Second, Observer: telemetry.Observer()})
	if err != nil {
		panic(err)
	}
	defer func() { _ = sem.Close() }()
	err = telemetry.Do(context.Background(), sem, func(ctx context.Context) error {
		return ctx.Err() // the work, whose spans are children of sema.hold
	})
	if err != nil {
		panic(err)
	}
	// Output:
}
