package otelsema

import (
	"context"
	"fmt"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"sema/metrics"
)

// Observe makes the meter read a metrics.Watch at each collection. It leaves out
// what other sources have, and what a metrics.Recorder counts: Telemetry.Observer
// records that as it happens. Unregister ends it. The error is the meter's.
func (t *Telemetry) Observe(source metrics.Source) (metric.Registration, error) {
	x, err := t.observables()
	if err != nil {
		return nil, err
	}
	registration, err := t.meter.RegisterCallback(func(ctx context.Context, o metric.Observer) error {
		for _, f := range source.Families(ctx) {
			for _, s := range f.Series {
				if sum, ok := x.sums[f.Name]; ok {
					o.ObserveInt64(sum, int64(s.Value), labels(s))
				} else if gauge, ok := x.gauges[f.Name]; ok {
					o.ObserveFloat64(gauge, s.Value, labels(s))
				}
			}
		}
		return nil
	}, x.all...)
	if err != nil {
		return nil, fmt.Errorf("otelsema: %w", err)
	}
	return registration, nil
}

// observables are instruments by the names of their metrics.
type observables struct {
	sums   map[string]metric.Int64Observable
	gauges map[string]metric.Float64Observable
	all    []metric.Observable
}

func (t *Telemetry) observables() (observables, error) {
	x := observables{sums: map[string]metric.Int64Observable{}, gauges: map[string]metric.Float64Observable{}}
	for _, name := range []string{metrics.Limit, metrics.LimitEnough, metrics.LimitBad, metrics.LeasesActive, metrics.QueueSize, metrics.KeysInTurn, metrics.KeysFull, metrics.PoolLimit, metrics.PoolUsed, metrics.PoolWaiting, metrics.LeasesReclaimed, metrics.QueueOldest, metrics.EngineUp} {
		f := metrics.Of(name, nil)
		var made metric.Observable
		var err error
		switch {
		case f.Kind == metrics.Counter:
			var c metric.Int64ObservableCounter
			c, err = t.meter.Int64ObservableCounter(name, metric.WithUnit(f.Unit), metric.WithDescription(f.Help))
			x.sums[name], made = c, c
		case name == metrics.QueueOldest || name == metrics.EngineUp || name == metrics.LimitBad || name == metrics.LimitEnough: // no use in a sum
			var g metric.Float64ObservableGauge
			g, err = t.meter.Float64ObservableGauge(name, metric.WithUnit(f.Unit), metric.WithDescription(f.Help))
			x.gauges[name], made = g, g
		default: // as in aspnetcore.rate_limiting
			var c metric.Int64ObservableUpDownCounter
			c, err = t.meter.Int64ObservableUpDownCounter(name, metric.WithUnit(f.Unit), metric.WithDescription(f.Help))
			x.sums[name], made = c, c
		}
		if err != nil {
			return x, fmt.Errorf("otelsema: %s: %w", name, err)
		}
		x.all = append(x.all, made)
	}
	return x, nil
}

func labels(s metrics.Series) metric.MeasurementOption {
	attributes := make([]attribute.KeyValue, 0, len(s.Labels))
	for _, l := range s.Labels {
		attributes = append(attributes, attribute.String(l.Name, l.Value))
	}
	return metric.WithAttributeSet(attribute.NewSet(attributes...))
}
