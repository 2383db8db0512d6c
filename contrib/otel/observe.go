package otelsema

import (
	"context"
	"fmt"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"sema/metrics"
)

// Observe has the meter read the gauges and counters of a source whenever it
// collects, such as those of a metrics.Watch. Histograms of the source are left
// out: OpenTelemetry records those as they happen, see Telemetry.Observer.
// Unregister ends it. The error is the meter's.
func (t *Telemetry) Observe(source metrics.Source) (metric.Registration, error) {
	// What an operator wants to add up over processes is an up-down counter, as
	// in aspnetcore.rate_limiting.
	sums := map[string]metric.Int64Observable{}
	observables := []metric.Observable{}
	for _, name := range []string{metrics.Limit, metrics.LeasesActive, metrics.QueueSize, metrics.EngineUp} {
		f, _ := metrics.Describe(name)
		made, err := t.meter.Int64ObservableUpDownCounter(name, metric.WithUnit(f.Unit), metric.WithDescription(f.Help))
		if err != nil {
			return nil, fmt.Errorf("otelsema: %s: %w", name, err)
		}
		sums[name] = made
		observables = append(observables, made)
	}
	f, _ := metrics.Describe(metrics.LeasesReclaimed)
	reclaimed, err := t.meter.Int64ObservableCounter(f.Name, metric.WithUnit(f.Unit), metric.WithDescription(f.Help))
	if err != nil {
		return nil, fmt.Errorf("otelsema: %s: %w", f.Name, err)
	}
	sums[f.Name] = reclaimed
	f, _ = metrics.Describe(metrics.QueueOldest)
	oldest, err := t.meter.Float64ObservableGauge(f.Name, metric.WithUnit(f.Unit), metric.WithDescription(f.Help))
	if err != nil {
		return nil, fmt.Errorf("otelsema: %s: %w", f.Name, err)
	}
	observables = append(observables, reclaimed, oldest)
	registration, err := t.meter.RegisterCallback(func(ctx context.Context, o metric.Observer) error {
		for _, f := range source.Families(ctx) {
			for _, s := range f.Series {
				if sum, ok := sums[f.Name]; ok {
					o.ObserveInt64(sum, int64(s.Value), labels(s))
				} else if f.Name == metrics.QueueOldest {
					o.ObserveFloat64(oldest, s.Value, labels(s))
				}
			}
		}
		return nil
	}, observables...)
	if err != nil {
		return nil, fmt.Errorf("otelsema: %w", err)
	}
	return registration, nil
}

func labels(s metrics.Series) metric.MeasurementOption {
	attributes := make([]attribute.KeyValue, 0, len(s.Labels))
	for _, l := range s.Labels {
		attributes = append(attributes, attribute.String(l.Name, l.Value))
	}
	return metric.WithAttributeSet(attribute.NewSet(attributes...))
}
