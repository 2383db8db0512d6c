package simulate

import (
	"fmt"
	"maps"
	"math/rand/v2"

	"sema/engine"
	"sema/internal/client"
	"sema/internal/protocol"
)

// drawReports draws how often processes report how their holds went, and whether a
// controller races with the operators; in half of all seeds. The others keep what they
// drew before there was such a thing.
func (p *plan) drawReports(lease int64) {
	rng := rand.New(rand.NewPCG(p.seed, 0x7265))
	if rng.IntN(2) == 0 {
		return
	}
	p.reports = []int64{lease / 20, lease / 2, 3 * lease}[rng.IntN(3)]
	p.controller = p.limits > 0
}

// report lets a process report the totals of its holds.
func (n *node) report() {
	w := n.w
	n.does(n.born, func() {
		n.totals.Good += w.between(0, second)
		n.totals.Bad += w.between(0, second)
		n.totals.Waited += w.between(0, 3)
		totals := n.totals
		n.machine.Do(n.clock(), &client.Order{}, protocol.Request{Kind: protocol.Report, Totals: &totals})
	})
}

// auto is a controller's word.
func (w *world) auto() protocol.Request {
	return protocol.Request{Kind: protocol.SetLimit, Limit: 1 + w.rng.IntN(6), Auto: &engine.Auto{Min: 1, Max: 6, Bad: w.rng.IntN(1000)}}
}

// reported looks at what a step has made of a report: no less than that, or than was
// known before, and no more than its process has ever said.
func (k *checker) reported(by string, c protocol.Call, reply protocol.Reply) {
	w := k.w
	if w.reports == 0 || len(reply.Answers) < len(c.Requests) {
		return
	}
	all := w.server.ledger.Reports(w.server.now()).Totals
	for i, r := range c.Requests {
		if r.Kind != protocol.Report || reply.Answers[i].Status != protocol.Done {
			continue
		}
		is, ok := all[by]
		if !ok || !atLeast(is, *r.Totals) {
			w.fail("report: %s has said %+v, and %+v is known", by, *r.Totals, is)
		}
	}
	for client, was := range k.reports {
		if is, ok := all[client]; ok && !atLeast(is, was) {
			w.fail("report: of %s %+v is known, and was %+v", client, is, was)
		}
	}
	k.reports = maps.Clone(all)
	for _, n := range w.nodes {
		if is := all[n.client]; !atLeast(n.totals, is) {
			w.fail("report: of %s %+v is known, and it has said no more than %+v", n.client, is, n.totals)
		}
	}
}

func atLeast(a, b protocol.Totals) bool {
	return a.Good >= b.Good && a.Bad >= b.Bad && a.Waited >= b.Waited
}

// pins looks whether a controller's limit counts although an operator's is pinned.
func (k *checker) pins(r protocol.Request, reply protocol.Reply, before *view) {
	limit := k.w.server.ledger.Limit
	if r.Auto != nil && (before.Pinned || before.Limit == 0) && (limit != before.Limit || reply.Answers[0].Status == protocol.Done) {
		k.w.fail("pin: a controller has set the limit to %d, and an operator's is %d (%s)", limit, before.Limit, fmt.Sprint(reply.Answers[0].Status))
	}
}
