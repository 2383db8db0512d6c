package client

import (
	"slices"
	"testing"
	"time"

	"sema/engine"
	"sema/internal/protocol"
)

// parts are a machine's parts without the machine: each test uses what it is about.
func parts(cfg Config) (*lines, *claims, *sender, *keeping) {
	cfg.Client = "me"
	if cfg.Lease == 0 {
		cfg.Lease = 30 * time.Second
	}
	m := New(cfg)
	return &m.lines, &m.claims, &m.sender, &m.keeping
}

// caller is one that came at a time, and joined its line.
func (ls *lines) caller(came time.Duration, a Acquisition) *Acquisition {
	a.came, a.state, a.wait = came, Asking, true
	if a.weight == 0 {
		a.weight = 1
	}
	l := ls.of(a.Target)
	l.add(&a)
	if l.next == nil || a.before(l.next) {
		l.next = &a
	}
	ls.note(l)
	return &a
}

// A line is in the order of since: when the caller came, less its priority.
func TestTheOrderOfALine(t *testing.T) {
	type comer struct {
		name  string
		came  time.Duration
		start time.Duration
	}
	for _, c := range []struct {
		name string
		come []comer
		want []string
	}{
		{"nobody", nil, nil},
		{"in the order they came", []comer{{"a", 1, 0}, {"b", 2, 0}, {"c", 3, 0}}, []string{"a", "b", "c"}},
		{"priority passes those that came less before", []comer{{"a", 1, 0}, {"b", 5, 0}, {"c", 6, 2}}, []string{"a", "c", "b"}},
		{"and all, if it is long", []comer{{"a", 1, 0}, {"b", 5, 0}, {"c", 6, 6}}, []string{"c", "a", "b"}},
		{"of equals the first to come goes first", []comer{{"a", 1, 0}, {"b", 2, 1}, {"c", 3, 2}}, []string{"a", "b", "c"}},
	} {
		ls, _, _, _ := parts(Config{})
		names := map[*Acquisition]string{}
		for _, x := range c.come {
			names[ls.caller(x.came, Acquisition{Priority: x.start})] = x.name
		}
		var got []string
		for a := ls.of(protocol.Target{}).first; a != nil; a = a.later {
			got = append(got, names[a])
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}

// A client asks for as many tickets as could be granted before its next call, in all lines together.
func TestHowManyTicketsALineHas(t *testing.T) {
	for _, c := range []struct {
		limit, lines, want int
	}{
		{1, 1, 2},
		{8, 1, 16},
		{8, 2, 8},
		{8, 5, 4},
		{1, 100, 2},
	} {
		ls, _, _, _ := parts(Config{Terms: Terms{Limit: c.limit}})
		for i := range c.lines {
			ls.caller(time.Duration(i+1), Acquisition{Target: protocol.Target{Key: engine.Key(rune('a' + i))}})
		}
		if got := ls.mostTickets(); got != c.want {
			t.Errorf("limit %d, %d lines: %d, want %d", c.limit, c.lines, got, c.want)
		}
	}
}

// A line that nobody waits in, and that has no claims, is forgotten.
func TestLinesOfNobodyAreForgotten(t *testing.T) {
	ls, cs, _, _ := parts(Config{Terms: Terms{Limit: 1}})
	a := ls.caller(1, Acquisition{Target: protocol.Target{Key: "k"}})
	c := cs.claim(a)
	ls.findNext(ls.of(protocol.Target{Key: "k"}))
	ls.leaveLine(a)
	if ls.others[protocol.Target{Key: "k"}] == nil {
		t.Error("the line is forgotten, and has a claim")
	}
	cs.end(c)
	if len(ls.others) != 0 || len(ls.lists[busy])+len(ls.lists[behind]) != 0 {
		t.Errorf("%d lines are remembered, %d callers listed", len(ls.others), len(ls.lists[busy]))
	}
}

// What a claim counts for in its line.
func TestWhatAClaimCountsFor(t *testing.T) {
	for _, c := range []struct {
		name            string
		claim           claim
		weight, tickets int
	}{
		{"a wish", claim{stage: wished}, 3, 0},
		{"a ticket", claim{stage: queued}, 3, 1},
		{"a permit to be renewed first", claim{stage: unproven}, 0, 0},
		{"a permit", claim{stage: held}, 0, 0},
		{"a wish that does not wait", claim{stage: wished, noWait: true}, 0, 0},
		{"a ticket that its caller named", claim{stage: queued, wish: &Wish{}}, 0, 0},
	} {
		c.claim.id.Weight = 3
		if weight, tickets := c.claim.counts(); weight != c.weight || tickets != c.tickets {
			t.Errorf("%s: %d, %d, want %d, %d", c.name, weight, tickets, c.weight, c.tickets)
		}
	}
}

// Whether a released permit may stay here.
func TestWhatMayStay(t *testing.T) {
	now := time.Minute
	for _, c := range []struct {
		name   string
		cfg    Config
		change func(*keeping, *claim)
		want   bool
	}{
		{name: "the engine has said so", want: true},
		{name: "it has not", change: func(k *keeping, _ *claim) { k.may = false }},
		{name: "it has said so for too short", change: func(k *keeping, _ *claim) { k.until = now }},
		{name: "the machine is closed", change: func(k *keeping, _ *claim) { k.closed = true }},
		{name: "another client made it", change: func(_ *keeping, c *claim) { c.resumed = true }},
		{name: "its slot is above the limit now", change: func(k *keeping, c *claim) { k.stored, c.slot = 1, 1 }},
		{name: "another limit holds, and that is refused", cfg: Config{Strict: true}, change: func(k *keeping, _ *claim) { k.stored = 3 }},
		{name: "other caps hold, and that is refused", cfg: Config{Strict: true}, change: func(k *keeping, _ *claim) { k.caps[1] = 4 }},
		{name: "its lease is nearly over", change: func(_ *keeping, c *claim) { c.valid = now + 10*time.Second - 1 }},
	} {
		c.cfg.Terms = Terms{Limit: 2, Lease: 30 * time.Second}
		_, _, _, k := parts(c.cfg)
		k.may, k.until = true, now+1
		held := &claim{stage: held, valid: now + 27*time.Second}
		if c.change != nil {
			c.change(k, held)
		}
		if got := k.mayLeave(now, held); got != c.want {
			t.Errorf("%s: %t", c.name, got)
		}
	}
}

// A call has room for so many requests, and for fewer asks.
func TestWhatACallHasRoomFor(t *testing.T) {
	_, _, s, _ := parts(Config{})
	for range maxAsks {
		if s.full() {
			t.Fatalf("full after %d asks", s.flight.asks)
		}
		s.request(item{}, protocol.Request{Kind: protocol.Ask})
	}
	if !s.full() {
		t.Errorf("not full after %d asks", s.flight.asks)
	}
	s.flight = flight{}
	for range maxRequests {
		if s.full() {
			t.Fatalf("full after %d releases", len(s.flight.items))
		}
		s.request(item{}, protocol.Request{Kind: protocol.Release})
	}
	if !s.full() {
		t.Errorf("not full after %d releases", len(s.flight.items))
	}
}

// A caller with priority gets the ticket of the last one, which is asked for again in
// its new place, and the first permit.
func TestPriorityWithinAProcess(t *testing.T) {
	s := begin(t, nil)
	id := s.hold()
	a, b := s.acquire(), s.acquire()
	s.answers(s.sends("ask1 ask2"))
	s.happened("queued queued")
	s.now += time.Second
	first := &Acquisition{Priority: time.Minute}
	s.m.Acquire(s.now, first, 1, true)
	if err := s.m.Audit(); err != nil {
		t.Error(err)
	}
	c := s.sends("ask2")
	if r := c.Requests[0]; r.Waited != time.Minute || !r.Anew {
		t.Errorf("asks with %v waited, anew %t", r.Waited, r.Anew)
	}
	s.answers(c)
	s.other(protocol.Request{Kind: protocol.Release, ID: id})
	s.told()
	if first.State() != Held || a.State() != Waiting || b.State() != Waiting {
		t.Errorf("%v, %v, %v", first.State(), a.State(), b.State())
	}
}
