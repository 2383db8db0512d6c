package adapt_test

import (
	"testing"
	"time"

	"sema/internal/adapt"
	"sema/internal/protocol"
)

// totals makes the totals of clients with the given good and bad seconds of weight × time.
// One grant had to wait for each second.
func totals(clients ...[2]float64) map[string]protocol.Totals {
	all := map[string]protocol.Totals{}
	for i, c := range clients {
		all[string(rune('a'+i))] = protocol.Totals{Good: int64(c[0] * 1e6), Bad: int64(c[1] * 1e6), Waited: int64(c[0] + c[1])}
	}
	return all
}

// The totals that a controller sees at the end of successive windows, and its decisions.
func TestDecisions(t *testing.T) {
	c := &adapt.Controller{Min: 2, Max: 50}
	limit := 10
	for i, step := range []struct {
		seen map[string]protocol.Totals
		want int
		why  string
	}{
		{totals([2]float64{1000, 500}), 10, "begins to look"},
		{totals([2]float64{1018, 500}), 15, "the window went well, and callers waited"},
		{totals([2]float64{1018, 500}), 15, "too little was held to tell"},
		{totals([2]float64{1045, 503}), 13, "10.0 % of the time held was bad in the last window"},
		{totals([2]float64{1069, 507}), 13, "waits for the effect of the last cut"},
		{totals([2]float64{1090, 507}), 14, "the window went well, and callers waited"},
		{totals([2]float64{1110, 507}), 14, "15 was too much before"},
		{map[string]protocol.Totals{"a": {Good: 1130e6, Bad: 507e6, Waited: 1617}}, 14, "the limit kept nobody waiting"},
		{totals([2]float64{0, 0}), 14, "too little was held to tell"},      // a client that started again: no difference is negative
		{totals([2]float64{1130, 507}), 14, "too little was held to tell"}, // and a late report
		{map[string]protocol.Totals{"new": {Good: 9000e6, Bad: 9000e6}}, 7, "50.0 % of the time held was bad in the last window"},
		{nil, 7, "nobody reports"},
	} {
		d := c.Decide(time.Duration(i)*adapt.Window, limit, step.seen)
		if d.Limit != step.want || d.Why != step.why {
			t.Fatalf("window %d: limit %d, %q; want %d, %q", i, d.Limit, d.Why, step.want, step.why)
		}
		limit = d.Limit
	}
}

func TestRange(t *testing.T) {
	c := &adapt.Controller{Min: 5, Max: 8}
	for _, limit := range []int{1, 100} {
		if d := c.Decide(0, limit, nil); d.Limit < 5 || d.Limit > 8 {
			t.Errorf("limit %d became %d, want 5 … 8", limit, d.Limit)
		}
	}
}
