// Package monitoring holds the alerts and the dashboard against Prometheus' own
// parser and engine, and against the metrics that there are.
package monitoring

import (
	"context"
	"encoding/json"
	"log/slog"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/promql/promqltest"
	"github.com/prometheus/prometheus/template"

	"sema/engines/memengine"
	"sema/internal/fixture/expect"
	"sema/metrics"
	"sema/server"
)

func alerts(t *testing.T) map[string]rulefmt.Rule {
	t.Helper()
	groups, errs := rulefmt.ParseFile("../../monitoring/alerts.yml", false, model.LegacyValidation, parser.NewParser(parser.Options{}), slog.New(slog.DiscardHandler))
	for _, err := range errs {
		t.Error(err)
	}
	if groups == nil || t.Failed() {
		t.FailNow()
	}
	rules := map[string]rulefmt.Rule{}
	for _, g := range groups.Groups {
		for _, r := range g.Rules {
			rules[r.Alert] = r
		}
	}
	return rules
}

// minutes are the values of series, a minute apart, and the alerts that they
// raise at that minute.
var stories = []struct {
	story  string
	series string
	at     time.Duration
	raises map[string]string // by alert: the semaphore, or ""
}{
	{
		story: "all is well, and nobody dies",
		series: `
  sema_engine_up{job="serve"} 1x60
  sema_limit{sema_name="llm"} 5x60
  sema_leases_active{sema_name="llm"} 5 4 5 5 4 5 4x60
  sema_queue_size{sema_name="llm"} 0 1 0 2 0x60
  sema_queue_oldest_seconds{sema_name="llm"} 0 1 0 10 0x60
  sema_leases_reclaimed_total{sema_name="llm"} 7x60
  sema_leases_lost_total{sema_name="llm",reason="expired"} 3x60
  sema_leases_lost_total{sema_name="llm",reason="revoked"} 0+1x60
  sema_acquires_total{sema_name="llm",result="acquired"} 0+100x60
  sema_acquires_total{sema_name="llm",result="failed"} 0+1x60`,
		at: 55 * time.Minute, raises: map[string]string{},
	},
	{
		story:  "the engine is away",
		series: `  sema_engine_up{job="serve"} 1x5 0x5`,
		at:     9 * time.Minute, raises: map[string]string{"SemaEngineDown": ""},
	},
	{
		story: "paused",
		series: `
  sema_limit{sema_name="llm"} 5x60
  sema_leases_active{sema_name="llm"} 0x60
  sema_queue_size{sema_name="llm"} 3x60
  sema_queue_oldest_seconds{sema_name="llm"} 0+60x60`,
		at:     55 * time.Minute,
		raises: map[string]string{"SemaIdleRoom": "llm", "SemaLongWait": "llm", "SemaSaturated": "llm"},
	},
	{
		story: "keys wait for what they hold themselves",
		series: `
  sema_limit{sema_name="llm"} 5x60
  sema_leases_active{sema_name="llm"} 2x60
  sema_queue_size{sema_name="llm"} 0 3x40 0 3x20
  sema_keys_in_turn{sema_name="llm",level="1"} 0x60
  sema_keys_full{sema_name="llm",level="1"} 1x60
  sema_keys_in_turn{sema_name="llm",level="2"} 2x60
  sema_keys_full{sema_name="llm",level="2"} 1x60`,
		at: 55 * time.Minute, raises: map[string]string{},
	},
	{
		story: "a key waits for nobody knows what",
		series: `
  sema_limit{sema_name="llm"} 5x60
  sema_leases_active{sema_name="llm"} 2x60
  sema_queue_size{sema_name="llm"} 0 3x60
  sema_keys_in_turn{sema_name="llm",level="1"} 1x60
  sema_keys_full{sema_name="llm",level="1"} 1x60
  sema_keys_in_turn{sema_name="llm",level="2"} 0x60`,
		at: 20 * time.Minute, raises: map[string]string{"SemaIdleRoom": "llm"},
	},
	{
		story: "some wait for a pool that has nothing left, and others for nobody knows what",
		series: `
  sema_limit{sema_name="llm"} 5x60
  sema_leases_active{sema_name="llm"} 2x60
  sema_queue_size{sema_name="llm"} 0 3x40 0 3x20
  sema_pool_limit{sema_name="llm",pool="gpu"} 2x60
  sema_pool_used{sema_name="llm",pool="gpu"} 2x60
  sema_pool_waiting{sema_name="llm",pool="gpu"} 3x60
  sema_pool_limit{sema_name="llm",pool="db"} 2x60
  sema_pool_used{sema_name="llm",pool="db"} 1x60
  sema_pool_waiting{sema_name="llm",pool="db"} 0x60
  sema_limit{sema_name="jobs"} 5x60
  sema_leases_active{sema_name="jobs"} 2x60
  sema_queue_size{sema_name="jobs"} 0 3x40 0 3x20
  sema_pool_limit{sema_name="jobs",pool="gpu"} 2x60
  sema_pool_used{sema_name="jobs",pool="gpu"} 1x60
  sema_pool_waiting{sema_name="jobs",pool="gpu"} 3x60
  sema_pool_limit{sema_name="jobs",pool="db"} 2x60
  sema_pool_used{sema_name="jobs",pool="db"} 2x60
  sema_pool_waiting{sema_name="jobs",pool="db"} 0x60`,
		at: 20 * time.Minute, raises: map[string]string{"SemaIdleRoom": "jobs"},
	},
	{
		story: "the limit was lowered",
		series: `
  sema_limit{sema_name="llm"} 5x5 3x60
  sema_leases_active{sema_name="llm"} 5x60`,
		at: 30 * time.Minute, raises: map[string]string{"SemaAboveLimit": "llm"},
	},
	{
		story: "holders die, lose permits, and forget others",
		series: `
  sema_leases_reclaimed_total{sema_name="llm"} 0x10 1x60
  sema_leases_lost_total{sema_name="llm",reason="expired"} 0x10 1x60
  sema_leases_lost_total{sema_name="jobs",reason="abandoned"} 0x10 1x60`,
		at:     15 * time.Minute,
		raises: map[string]string{"SemaHoldersDie": "llm", "SemaPermitsLost": "llm", "SemaPermitsForgotten": "jobs"},
	},
	{
		story: "one in ten fails",
		series: `
  sema_acquires_total{sema_name="llm",result="acquired"} 0+90x60
  sema_acquires_total{sema_name="llm",result="failed"} 0+10x60`,
		at: 30 * time.Minute, raises: map[string]string{"SemaAcquiresFail": "llm"},
	},
}

func TestAlertsAreRaisedWhenTheyShould(t *testing.T) {
	rules := alerts(t)
	engine := promqltest.NewTestEngine(t, false, 0, promqltest.DefaultMaxSamplesPerQuery)
	raised := map[string]bool{}
	for _, s := range stories {
		t.Run(s.story, func(t *testing.T) {
			storage := promqltest.LoadedStorage(t, "load 1m\n"+strings.TrimPrefix(s.series, "\n"))
			for name, rule := range rules {
				q, err := engine.NewInstantQuery(t.Context(), storage, nil, rule.Expr, time.Unix(0, 0).Add(s.at))
				if err != nil {
					t.Fatalf("%s: %v", name, err)
				}
				found, err := q.Exec(t.Context()).Vector()
				if err != nil {
					t.Fatalf("%s: %v", name, err)
				}
				semaphore, should := s.raises[name]
				switch {
				case should != (len(found) > 0):
					t.Errorf("%s: raised %v, want %v; %v", name, !should, should, found)
				case should:
					raised[name] = true
					if got := found[0].Metric.Get("sema_name"); got != semaphore {
						t.Errorf("%s is about %q, want %q", name, got, semaphore)
					}
					expands(t, name, rule, found[0])
				}
				q.Close()
			}
		})
	}
	for name := range rules {
		if !raised[name] {
			t.Errorf("no story raises %s", name)
		}
	}
}

// expands carries out what an alert says of itself.
func expands(t *testing.T, name string, rule rulefmt.Rule, s promql.Sample) {
	t.Helper()
	for what, text := range rule.Annotations {
		data := template.AlertTemplateData(s.Metric.Map(), nil, "", s)
		all := `{{$labels := .Labels}}{{$value := .Value}}` + text
		got, err := template.NewTemplateExpander(context.Background(), all, name, data, 0, nil, nil, nil).Expand()
		if err != nil || strings.Contains(got, "<no value>") || strings.TrimSpace(got) == "" {
			t.Errorf("%s: %s %q: %v", name, what, got, err)
		}
	}
}

// known fails if an expression uses a metric that sema does not have.
func known(t *testing.T, where, text string) {
	t.Helper()
	expr, err := parser.NewParser(parser.Options{}).ParseExpr(text)
	if err != nil {
		t.Errorf("%s: %v", where, err)
		return
	}
	families := metrics.All()
	srv, err := server.New(memengine.New(), nil)
	expect.OK(t, err)
	defer srv.Close()
	families = append(families, srv.Families(t.Context())...)
	there := map[string]bool{}
	for _, f := range families {
		if f.Kind != metrics.Histogram {
			there[f.PrometheusName()] = true
			continue
		}
		for _, part := range []string{"_bucket", "_sum", "_count"} {
			there[f.PrometheusName()+part] = true
		}
	}
	used := 0
	parser.Inspect(expr, func(n parser.Node, _ []parser.Node) error {
		if s, ok := n.(*parser.VectorSelector); ok {
			used++
			if !there[s.Name] {
				t.Errorf("%s: sema has no metric %q", where, s.Name)
			}
			for _, m := range s.LabelMatchers {
				if !slices.Contains([]string{model.MetricNameLabel, "sema_name", "result", "reason", "level", "pool"}, m.Name) {
					t.Errorf("%s: sema has no label %q", where, m.Name)
				}
			}
		}
		return nil
	})
	if used == 0 {
		t.Errorf("%s: %s uses no metric", where, text)
	}
}

func TestAlertsUseWhatThereIs(t *testing.T) {
	for name, rule := range alerts(t) {
		known(t, name, rule.Expr)
		if rule.Labels["severity"] == "" || rule.Annotations["summary"] == "" || rule.Annotations["description"] == "" {
			t.Errorf("%s: no severity, summary or description", name)
		}
	}
}

type panel struct {
	ID      int
	Title   string
	Type    string
	GridPos struct{ X, Y, W, H int }
	Targets []struct{ Expr, RefID string }
}

func TestDashboard(t *testing.T) {
	text, err := os.ReadFile("../../monitoring/dashboard.json")
	expect.OK(t, err)
	var d struct {
		Title, UID string
		Panels     []panel
	}
	expect.OK(t, json.Unmarshal(text, &d))
	if d.Title == "" || d.UID == "" || len(d.Panels) == 0 {
		t.Fatalf("an empty dashboard: %+v", d)
	}
	variables := strings.NewReplacer("$name", ".*", "$__rate_interval", "5m")
	ids, taken, asked := map[int]bool{}, map[[2]int]string{}, ""
	for _, p := range d.Panels {
		if ids[p.ID] || p.Title == "" || p.Type == "" || len(p.Targets) == 0 {
			t.Errorf("panel %d %q: its id is not its own, or it is empty", p.ID, p.Title)
		}
		ids[p.ID] = true
		for _, target := range p.Targets {
			known(t, p.Title, variables.Replace(target.Expr))
			asked += target.Expr
		}
		if p.GridPos.X+p.GridPos.W > 24 {
			t.Errorf("%q is beyond the right edge", p.Title)
		}
		for x := p.GridPos.X; x < p.GridPos.X+p.GridPos.W; x++ {
			for y := p.GridPos.Y; y < p.GridPos.Y+p.GridPos.H; y++ {
				if other := taken[[2]int{x, y}]; other != "" {
					t.Fatalf("%q lies over %q", p.Title, other)
				}
				taken[[2]int{x, y}] = p.Title
			}
		}
	}
	expect.Has(t, asked, "sema_pool_", "sema_keys_", "sema_server_", "sema_acquires_total", "sema_leases_lost_total")
}
