// Package otelsema tells OpenTelemetry what happens to semaphores: metrics, and
// spans for the wait and for the hold. It is a module of its own, so that only
// those have OpenTelemetry among their modules who use it.
//
//	telemetry, err := otelsema.New(nil) // the global providers
//	sem, err := sema.New(engine, "llm", 5, &sema.Options{Observer: telemetry.Observer()})
//	err = telemetry.Do(ctx, sem, func(ctx context.Context) error { … })
//
// The names of metrics, attributes and results are those of package
// sema/metrics, which says what they mean. Gauges come from the engine: give
// Observe a metrics.Watch, in one process of the fleet.
package otelsema

import (
	"context"
	"fmt"
	"sync"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"

	"sema"
	"sema/metrics"
)

// Scope is the instrumentation scope of all metrics and spans.
const Scope = "sema/contrib/otel"

// Options of a Telemetry. The zero value of each field is its default.
type Options struct {
	// MeterProvider makes the meter. Default: the global one.
	MeterProvider metric.MeterProvider

	// TracerProvider makes the tracer. Default: the global one.
	TracerProvider trace.TracerProvider

	// Names, Group and Bounds are those of metrics.Options.
	Names  int
	Group  func(semaphore string) string
	Bounds []float64
}

// Telemetry tells OpenTelemetry what happens to semaphores. Any number of them
// share one; it is safe for concurrent use.
type Telemetry struct {
	names    *metrics.Names
	meter    metric.Meter
	tracer   trace.Tracer
	acquires metric.Int64Counter
	lost     metric.Int64Counter
	wait     metric.Float64Histogram
	held     metric.Float64Histogram
	sets     sync.Map // of metric.MeasurementOption by set: names, results and reasons are bounded
}

// set is what tells the series of one metric apart.
type set struct{ name, key, value string }

// New makes a Telemetry. A nil options means the defaults. It fails on values
// out of range, with an *engine.ArgumentError, and with the meter's error.
func New(options *Options) (*Telemetry, error) {
	if options == nil {
		options = &Options{}
	}
	o := *options
	if o.MeterProvider == nil {
		o.MeterProvider = otel.GetMeterProvider()
	}
	if o.TracerProvider == nil {
		o.TracerProvider = otel.GetTracerProvider()
	}
	// A Recorder checks the values, and tells the default bounds.
	if _, err := metrics.NewRecorder(&metrics.Options{Names: o.Names, Group: o.Group, Bounds: o.Bounds}); err != nil {
		return nil, err
	}
	if len(o.Bounds) == 0 {
		o.Bounds = metrics.DefaultBounds()
	}
	names, err := metrics.NewNames(o.Names, o.Group)
	if err != nil {
		return nil, err
	}
	t := &Telemetry{names: names, meter: o.MeterProvider.Meter(Scope), tracer: o.TracerProvider.Tracer(Scope)}
	for name, counter := range map[string]*metric.Int64Counter{metrics.Acquires: &t.acquires, metrics.LeasesLost: &t.lost} {
		f := metrics.Of(name, nil)
		if *counter, err = t.meter.Int64Counter(name, metric.WithUnit(f.Unit), metric.WithDescription(f.Help)); err != nil {
			return nil, fmt.Errorf("otelsema: %s: %w", name, err)
		}
	}
	for name, histogram := range map[string]*metric.Float64Histogram{metrics.AcquireWait: &t.wait, metrics.LeaseDuration: &t.held} {
		f := metrics.Of(name, nil)
		if *histogram, err = t.meter.Float64Histogram(name, metric.WithUnit(f.Unit), metric.WithDescription(f.Help), metric.WithExplicitBucketBoundaries(o.Bounds...)); err != nil {
			return nil, fmt.Errorf("otelsema: %s: %w", name, err)
		}
	}
	return t, nil
}

// Observer is for Options.Observer of a Semaphore. A program that observes for
// itself as well joins its own with sema.Observer.And.
func (t *Telemetry) Observer() sema.Observer { return metrics.Observer(t.acquired, t.ended) }

// acquired counts the end of an acquisition.
func (t *Telemetry) acquired(semaphore, result string, waited time.Duration) {
	name, ctx := t.names.Of(semaphore), context.Background()
	t.acquires.Add(ctx, 1, t.with(set{name, metrics.LabelResult, result}))
	if result == metrics.Acquired {
		t.wait.Record(ctx, max(0, waited).Seconds(), t.with(set{name: name}))
	}
}

// ended counts the end of a permit. reason is "" for a release.
func (t *Telemetry) ended(semaphore, reason string, held time.Duration) {
	name, ctx := t.names.Of(semaphore), context.Background()
	if reason != "" {
		t.lost.Add(ctx, 1, t.with(set{name, metrics.LabelReason, reason}))
	}
	t.held.Record(ctx, max(0, held).Seconds(), t.with(set{name: name}))
}

// with is the attributes of a series, made once.
func (t *Telemetry) with(s set) metric.MeasurementOption {
	if known, ok := t.sets.Load(s); ok {
		return known.(metric.MeasurementOption)
	}
	attributes := []attribute.KeyValue{attribute.String(metrics.LabelName, s.name)}
	if s.key != "" {
		attributes = append(attributes, attribute.String(s.key, s.value))
	}
	made := metric.WithAttributeSet(attribute.NewSet(attributes...))
	known, _ := t.sets.LoadOrStore(s, made)
	return known.(metric.MeasurementOption)
}
