package client

import (
	"fmt"
	"slices"

	"sema/internal/protocol"
)

// Audit compares what the machine keeps twice: the callers of each line, the first one
// without a claim, the weight of the tickets, and what is for nobody. It is for tests and the simulator.
func (m *Machine) Audit() error {
	weight, tickets := map[protocol.Target]int{}, map[protocol.Target]int{}
	for i, c := range m.claims.all {
		if int(c.index) != i || m.claims.find(c.id) != c {
			return fmt.Errorf("%v is not where it should be", c.id)
		}
		if c.holder == nil && c.stage != unproven && !slices.Contains(m.claims.idle, c) {
			return fmt.Errorf("%v is %v for nobody, and nobody will give it back", c.id, c.stage)
		}
		if c.lined() {
			weight[c.target] += c.id.Weight
			if c.stage == queued {
				tickets[c.target]++
			}
		}
	}
	lines := []*line{&m.lines.plain}
	for _, l := range m.lines.others {
		lines = append(lines, l)
	}
	for _, l := range lines {
		if err := l.audit(weight[l.target], tickets[l.target]); err != nil {
			return fmt.Errorf("%v: %w", l.target, err)
		}
		delete(weight, l.target)
	}
	for target := range weight {
		return fmt.Errorf("%v has tickets, and no line", target)
	}
	return nil
}

func (l *line) audit(weight, tickets int) error {
	length, wanted, last := 0, 0, (*Acquisition)(nil)
	var next *Acquisition
	for a := l.first; a != nil; a = a.later {
		switch {
		case !a.waiting || a.earlier != last || last != nil && a.since() < last.since():
			return fmt.Errorf("who came at %v is not in order", a.came)
		case a.claim == nil && next == nil:
			next = a
		case a.claim != nil && next != nil:
			return fmt.Errorf("the caller that came at %v has a ticket, and one before it has none", a.came)
		}
		length, wanted, last = length+1, wanted+a.weight, a
	}
	switch {
	case l.last != last || l.length != length:
		return fmt.Errorf("%d callers wait, and %d are counted", length, l.length)
	case l.next != next:
		return fmt.Errorf("of %d callers another one is the first without a ticket", length)
	case l.wanted != wanted:
		return fmt.Errorf("the callers want a weight of %d, and %d is counted", wanted, l.wanted)
	case l.tickets != tickets:
		return fmt.Errorf("%d tickets are queued, and %d are counted", tickets, l.tickets)
	case l.weight != weight:
		return fmt.Errorf("the tickets weigh %d, and %d is counted", weight, l.weight)
	case (l.at[busy] > 0) != (length > 0) || (l.at[behind] > 0) != (next != nil):
		return fmt.Errorf("%d callers wait, and the lists do not say so", length)
	}
	return nil
}
