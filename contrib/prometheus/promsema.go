// Package promsema is a collector of sema's figures for the registry of
// Prometheus' Go client. It is a module of its own, so that only those have the
// client among their modules who use it: package sema/metrics serves /metrics
// without.
//
//	recorder, err := metrics.NewRecorder(nil)
//	prometheus.MustRegister(promsema.Collector(recorder))
//	sem, err := sema.New(engine, "llm", 5, &sema.Options{Observer: recorder.Observer()})
//
// What the figures mean is said in package sema/metrics.
package promsema

import (
	"context"

	"github.com/prometheus/client_golang/prometheus"

	"sema/metrics"
)

// Collector is for a registry. It has the figures of all sources at the moment
// of the scrape. Two sources must not have series of the same metric with the
// same labels: the registry would refuse to gather them.
func Collector(sources ...metrics.Source) prometheus.Collector { return collector(sources) }

type collector []metrics.Source

// Describe implements prometheus.Collector. It describes nothing: which labels
// there are is known when there are series.
func (collector) Describe(chan<- *prometheus.Desc) {}

// Collect implements prometheus.Collector.
func (c collector) Collect(to chan<- prometheus.Metric) {
	for _, source := range c {
		for _, f := range source.Families(context.Background()) {
			for _, s := range f.Series {
				to <- convert(f, s)
			}
		}
	}
}

func convert(f metrics.Family, s metrics.Series) prometheus.Metric {
	var names, values []string
	for _, l := range s.Labels {
		names, values = append(names, l.PrometheusName()), append(values, l.Value)
	}
	desc := prometheus.NewDesc(f.PrometheusName(), f.Help, names, nil)
	var made prometheus.Metric
	var err error
	switch f.Kind {
	case metrics.Histogram:
		buckets, sum := map[float64]uint64{}, uint64(0)
		for i, bound := range s.Spread.Bounds {
			sum += s.Spread.Counts[i]
			buckets[bound] = sum
		}
		made, err = prometheus.NewConstHistogram(desc, s.Spread.Count(), s.Spread.Sum, buckets, values...)
	case metrics.Counter:
		made, err = prometheus.NewConstMetric(desc, prometheus.CounterValue, s.Value, values...)
	default:
		made, err = prometheus.NewConstMetric(desc, prometheus.GaugeValue, s.Value, values...)
	}
	if err != nil {
		return prometheus.NewInvalidMetric(desc, err)
	}
	return made
}
