package ledger_test

import (
	"maps"
	"testing"
	"time"

	"sema/engine"
	"sema/internal/ledger"
	"sema/internal/protocol"
)

// reporter makes calls of one client after the other.
type reporter struct {
	l      ledger.Ledger
	now    int64
	number uint64
}

func (w *reporter) step(client string, r protocol.Request) protocol.Status {
	w.number++
	return w.l.Step(w.now, client, engine.Client{}, protocol.Call{Number: w.number, Requests: []protocol.Request{r}}).Answers[0].Status
}

func reports(good, bad, waited int64) protocol.Request {
	return protocol.Request{Kind: protocol.Report, Totals: &protocol.Totals{Good: good, Bad: bad, Waited: waited}}
}

func auto(limit int) protocol.Request {
	return protocol.Request{Kind: protocol.SetLimit, Limit: limit, Auto: &engine.Auto{Min: 2, Max: 9, Bad: 31}}
}

func TestReports(t *testing.T) {
	w := &reporter{now: 1_000_000}
	w.step("op", protocol.Request{Kind: protocol.SetLimit, Limit: 5})
	w.step("a", reports(20, 4, 3))
	w.now += 30_000_000
	w.step("b", reports(1, 0, 0))
	want := map[string]protocol.Totals{"a": {Good: 20, Bad: 4, Waited: 3}, "b": {Good: 1}}
	if got := w.l.Reports(w.now).Totals; !maps.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	if got := ledger.Load(w.l.Save()).Reports(w.now).Totals; !maps.Equal(got, want) {
		t.Errorf("after Save and Load %v, want %v", got, want)
	}
	w.now += 30_000_000 // a minute after the last of a
	delete(want, "a")
	if got := w.l.Reports(w.now).Totals; !maps.Equal(got, want) {
		t.Errorf("a minute later %v, want %v", got, want)
	}
}

// A controller alone keeps no semaphore.
func TestAControllersSemaphoreIsForgotten(t *testing.T) {
	w := &reporter{now: 1_000_000}
	w.step("op", protocol.Request{Kind: protocol.SetLimit, Limit: 5})
	for end := w.now + (5 * time.Minute).Microseconds(); w.now < end; w.now += 2_000_000 {
		w.step("c", auto(4))
	}
	if got := w.l.State(w.now).Limit; got != 0 {
		t.Errorf("limit %d, want none", got)
	}
}
