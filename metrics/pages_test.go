package metrics

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"sema/internal/figures"
	"sema/internal/fixture/pages"
)

// Each metric that a page names is one of these; those of the server are held against the pages by its
// own test.
func TestPagesNameMetricsThatThereAre(t *testing.T) {
	var names []string
	for _, f := range figures.All() {
		names = append(names, f.PrometheusName())
	}
	others := []string{"sema_name", "sema_state", "sema_schema", "sema_poll", "sema_listen", "sema_client"} // a label, and what PostgreSQL and Python have
	pages.Check{
		Claim: regexp.MustCompile(`\bsema_[a-z_]*[a-z]`),
		True: func(claim string) bool {
			if strings.HasPrefix(claim, "sema_server_") || slices.Contains(others, claim) {
				return true
			}
			for _, suffix := range []string{"_sum", "_count", "_bucket"} {
				claim = strings.TrimSuffix(claim, suffix)
			}
			return slices.Contains(names, claim)
		},
		Is: "metric",
	}.Run(t, "Alert on `sema_leases_stolen_total`.")
}
