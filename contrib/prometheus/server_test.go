package promsema_test

import (
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"sema/contrib/prometheus"
	"sema/engines/memengine"
	"sema/metrics"
	"sema/server"
)

// A server's figures of itself are read by Prometheus' parser, and those of its process
// have the names that Prometheus' own client gives them.
func TestServersFigures(t *testing.T) {
	e := memengine.New()
	s, err := server.New(e, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close(); _ = e.Close() })
	put := httptest.NewRequest("PUT", "http://localhost/v1/semaphores/x/permits/a", strings.NewReader(`{"limit":1}`))
	put.Header.Set("Content-Type", "application/json")
	s.ServeHTTP(httptest.NewRecorder(), put)
	var text strings.Builder
	if err := metrics.WriteText(t.Context(), &text, s, metrics.Process()); err != nil {
		t.Fatal(err)
	}
	parser := expfmt.NewTextParser(model.UTF8Validation)
	parsed, err := parser.TextToMetricFamilies(strings.NewReader(text.String()))
	if err != nil {
		t.Fatalf("%v in\n%s", err, text.String())
	}
	problems, err := testutil.CollectAndLint(promsema.Collector(s))
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		t.Errorf("%s: %s", p.Metric, p.Text)
	}
	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	theirs, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
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
