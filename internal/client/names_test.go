package client

import (
	"testing"
	"time"

	"sema/engine"
	"sema/internal/protocol"
)

// named is a wish of a caller that names its permit.
func named(number uint64) *Named {
	p := &Named{Wish: Wish{
		Terms: Terms{Limit: 1, Lease: time.Minute}, ID: engine.ID{Client: "api", Number: number, Weight: 1},
		Who: engine.Client{Label: "somebody"}, Wait: true,
	}}
	p.Owner = p
	return p
}

// names has a machine of a server, whose callers renew by themselves.
func names(t *testing.T) (*story, *Names) {
	s := begin(t, func(c *Config) { c.Renew, c.Margin, c.Detached = 0, 0, true })
	return s, NewNames(s.m)
}

// observe does what a server does with events.
func (s *story) observe(n *Names, want string) {
	s.Helper()
	for _, e := range s.m.events {
		if e.A == nil {
			continue
		}
		if p := e.A.Owner.(*Named); e.Kind == Denied || e.Kind == Lost {
			n.End(p)
		}
	}
	s.happened(want)
}

func TestOneNameIsOnePermit(t *testing.T) {
	s, n := names(t)
	p := n.Ask(s.now, named(7))
	if again := n.Ask(s.now, named(7)); again != p || p.Users != 2 {
		t.Errorf("asked for twice: %d users", p.Users)
	}
	c := s.sends("ask7")
	if r := c.Requests[0]; r.Who == nil || r.Again || r.Lease != time.Minute || r.Ticket != namedTicket || !r.Detached {
		t.Errorf("%+v", r)
	}
	s.answers(c)
	s.observe(n, "granted")
	n.Leave(s.now, p, true)
	n.Leave(s.now, p, false) // the other one's connection broke: its caller has been told
	s.sends("")
	s.later(time.Hour)
	s.observe(n, "lost")
	if n.Len() != 0 || !p.Over || !s.m.sender.idle() {
		t.Errorf("%d left", n.Len())
	}
}

func TestWhatNobodyWasToldOfIsGivenBack(t *testing.T) {
	s, n := names(t)
	p := n.Ask(s.now, named(7))
	s.answers(s.sends("ask7"))
	s.observe(n, "granted")
	n.Leave(s.now, p, false)
	c := s.sends("release7")
	if !c.Requests[0].Mine {
		t.Error("the release takes the permit though another server was asked since")
	}
	s.answers(c)
	if permits, _ := s.written(); permits != 0 || n.Len() != 0 {
		t.Errorf("%d held", permits)
	}
}

func TestWhatWasThereBeforeIsNotGivenBack(t *testing.T) {
	s, n := names(t)
	s.other(protocol.Request{Kind: protocol.Ask, ID: named(7).Wish.ID, Limit: 1, Lease: 20 * time.Second, Who: &engine.Client{}, Wait: true})
	p := n.Ask(s.now, named(7))
	s.answers(s.sends("ask7"))
	s.answers(s.sends("renew7")) // it has the rest of a lease
	s.observe(n, "granted")
	n.Leave(s.now, p, false)
	s.sends("")
	if permits, _ := s.written(); permits != 1 {
		t.Errorf("%d held", permits)
	}
}

// The connection breaks while the ask travels. What its answer says is this client's
// own is given back.
func TestWhatIsAnsweredTooLateIsGivenBackIfItIsNew(t *testing.T) {
	for _, held := range []bool{false, true} {
		s, n := names(t)
		if held {
			s.other(protocol.Request{Kind: protocol.Ask, ID: named(7).Wish.ID, Limit: 1, Lease: 20 * time.Second, Who: &engine.Client{}, Wait: true})
		}
		p := n.Ask(s.now, named(7))
		c := s.sends("ask7")
		n.Leave(s.now, p, false)
		s.answers(c)
		if held {
			s.sends("")
		} else {
			s.answers(s.sends("release7"))
		}
		if permits, _ := s.written(); permits != map[bool]int{true: 1}[held] {
			t.Errorf("held before: %v; held now: %d", held, permits)
		}
	}
}

// A server that closes tells a caller to ask another one. It keeps the place that the engine
// gives it at that moment.
func TestWhoeverAsksAnotherServerKeepsThePlace(t *testing.T) {
	s, n := names(t)
	s.hold()
	p := n.Ask(s.now, named(7))
	c := s.sends("ask7")
	n.Part(p)
	s.answers(c)
	q := n.Ask(s.now, named(8))
	s.answers(s.sends("ask8"))
	s.observe(n, "queued")
	n.Part(q)
	s.m.Close()
	s.sends("")
	if _, waiting := s.written(); waiting != 2 || n.Len() != 0 {
		t.Errorf("%d wait", waiting)
	}
}

// The release of a wait that ended is still owed when its caller asks again.
func TestAnOwedReleaseGivesWayToANewAsk(t *testing.T) {
	s, n := names(t)
	other := s.hold()
	p := n.Ask(s.now, named(7))
	s.answers(s.sends("ask7"))
	s.observe(n, "queued")
	n.Leave(s.now, p, false)
	s.sends("release7")
	s.m.Failed(s.now, unknown)
	n.Ask(s.now, named(7))
	s.later(maxPause)
	s.answers(s.sends("fence ask7"))
	s.observe(n, "queued")
	s.other(protocol.Request{Kind: protocol.Release, ID: other})
	s.told()
	s.answers(s.sends("renew7"))
	s.observe(n, "granted")
}

func TestAHandOffThatLapsedIsAskedForUnderItsName(t *testing.T) {
	s, n := names(t)
	other := s.hold()
	n.Ask(s.now, named(7))
	s.answers(s.sends("ask7"))
	s.other(protocol.Request{Kind: protocol.Release, ID: other})
	s.now += namedTicket + time.Second
	s.told()
	s.answers(s.sends("renew7"))
	s.observe(n, "queued")
	c := s.sends("ask7")
	if !c.Requests[0].Again {
		t.Error("it takes the ticket from a server that was asked since")
	}
	s.answers(c)
	s.observe(n, "granted")
}

func TestAPermitOfAnotherServerIsTakenUpAndRenewed(t *testing.T) {
	s, n := names(t)
	id := named(7).Wish.ID
	s.other(protocol.Request{Kind: protocol.Ask, ID: id, Limit: 1, Lease: 20 * time.Second, Who: &engine.Client{}, Wait: true})
	p := named(7)
	n.Resume(s.now, p)
	s.answers(s.sends("renew7"))
	s.observe(n, "granted")
	if n.Find(7) != p || !p.Told || p.Valid()-s.now != time.Minute {
		t.Errorf("%+v", p)
	}
	// At the other server it was given back, and asked for again.
	s.other(protocol.Request{Kind: protocol.Release, ID: id})
	s.m.Notify(s.now, protocol.Notification{Renew: true}) // a permit that its caller renews is left to it
	s.sends("")
	again := s.other(protocol.Request{Kind: protocol.Ask, ID: id, Limit: 1, Lease: 20 * time.Second, Who: &engine.Client{}, Wait: true})
	s.m.Renew(s.now, &Order{}, &p.Acquisition)
	s.answers(s.sends("renew7"))
	s.observe(n, "answered")
	if p.Token() != again.Token || p.Over {
		t.Errorf("token %d, want the new one, %d", p.Token(), again.Token)
	}
	gone := named(8)
	n.Resume(s.now, gone)
	s.answers(s.sends("renew8"))
	s.observe(n, "denied")
	if !gone.Over || n.Len() != 1 {
		t.Error("taken up, and it is not there")
	}
	n.Forget()
	s.sends("")
	if n.Len() != 0 {
		t.Error("not forgotten")
	}
}

// A caller that has a permit asks again, finds that it is gone, and does not wait.
func TestACallerThatHadAPermitDoesNotWaitUnseen(t *testing.T) {
	s, n := names(t)
	p := n.Ask(s.now, named(7))
	s.answers(s.sends("ask7"))
	s.observe(n, "granted")
	n.Leave(s.now, p, true)
	s.other(protocol.Request{Kind: protocol.Release, ID: p.Wish.ID})
	s.hold()
	q := n.Ask(s.now, named(7))
	if q == p || !p.Over || !q.Told {
		t.Fatal("what was told is not asked for anew")
	}
	n.Leave(s.now, q, false)
	s.answers(s.sends("ask7"))
	s.happened("queued")
	n.DropUnwanted(s.now, q)
	s.answers(s.sends("release7"))
	if _, tickets := s.written(); tickets != 0 || n.Len() != 0 {
		t.Errorf("%d wait", tickets)
	}
}

func TestAClosedMachineGrantsNoName(t *testing.T) {
	s, n := names(t)
	s.m.Close()
	n.Ask(s.now, named(7))
	s.observe(n, "denied")
	n.Resume(s.now, named(8))
	s.observe(n, "denied")
	if n.Len() != 0 {
		t.Error("something is left")
	}
}

func TestNoClaimBecomesWhatItCannot(t *testing.T) {
	s := begin(t, nil)
	a := s.acquire()
	s.answers(s.sends("ask1"))
	defer func() {
		if got := recover(); got != "client: me-1-1 is held, and cannot become queued" {
			t.Errorf("%v", got)
		}
	}()
	s.m.claims.becomes(a.claim, queued)
}

// The same, and it was there before this server was first asked. The ticket in its
// place is this server's own all the same.
func TestATicketInThePlaceOfAPermitIsGivenBack(t *testing.T) {
	s, n := names(t)
	id := named(7).Wish.ID
	s.other(protocol.Request{Kind: protocol.Ask, ID: id, Limit: 1, Lease: 20 * time.Second, Who: &engine.Client{}, Wait: true})
	p := n.Ask(s.now, named(7))
	s.answers(s.sends("ask7")) // found, and to be renewed
	s.other(protocol.Request{Kind: protocol.Release, ID: id})
	s.hold()
	s.answers(s.sends("renew7"))
	s.answers(s.sends("ask7"))
	s.happened("queued")
	n.Leave(s.now, p, false)
	s.answers(s.sends("release7"))
	if _, tickets := s.written(); tickets != 0 {
		t.Errorf("%d wait for nobody", tickets)
	}
}

// A renewal travels when its caller gives the permit back at another server, and asks
// here anew. What it tells is over.
func TestACallerThatComesAnewGetsNothingOld(t *testing.T) {
	s, n := names(t)
	other := s.hold()
	p := n.Ask(s.now, named(7))
	s.answers(s.sends("ask7"))
	s.other(protocol.Request{Kind: protocol.Release, ID: other})
	s.told()
	c := s.sends("renew7")
	reply := s.step("me", c)
	s.other(protocol.Request{Kind: protocol.Release, ID: p.Wish.ID})
	s.hold()
	n.Ask(s.now, named(7)) // joins
	s.m.Answer(s.now, reply)
	s.observe(n, "queued")
	s.answers(s.sends("renew7"))
	s.answers(s.sends("ask7"))
	if p.State() != Waiting {
		t.Errorf("the permit is another's, and this caller is %v", p.State())
	}
}

// Nobody has been told of a permit yet when its caller gives it back at another server, and
// asks here anew. Both requests wait for what the engine says.
func TestACallerThatComesAnewDoesNotGetWhatItGaveBack(t *testing.T) {
	s, n := names(t)
	old := n.Ask(s.now, named(7))
	s.answers(s.sends("ask7"))
	s.other(protocol.Request{Kind: protocol.Release, ID: old.Wish.ID})
	s.hold()
	p := n.Ask(s.now, named(7))
	s.answers(s.sends("ask7"))
	if old.Latest() != p || p.State() != Waiting {
		t.Errorf("the permit is another's, and this caller is %v", p.State())
	}
	n.Leave(s.now, old, false)
	n.Leave(s.now, p, false)
	s.sends("release7")
	if n.Len() != 0 {
		t.Errorf("nobody waits, and %d are left", n.Len())
	}
}

// A caller gives its permit back while this server takes it up, and asks here anew.
func TestACallerThatComesAnewIsNotRefusedForWhatItGaveBack(t *testing.T) {
	s, n := names(t)
	id := named(7).Wish.ID
	s.other(protocol.Request{Kind: protocol.Ask, ID: id, Limit: 1, Lease: 20 * time.Second, Who: &engine.Client{}, Wait: true})
	old := named(7)
	n.Resume(s.now, old)
	c := s.sends("renew7")
	s.other(protocol.Request{Kind: protocol.Release, ID: id})
	p := n.Ask(s.now, named(7))
	if p == old || !old.Over {
		t.Fatal("it joins what is taken up")
	}
	s.answers(c)
	s.answers(s.sends("ask7"))
	s.observe(n, "granted")
	if n.Find(7) != p || p.State() != Held {
		t.Errorf("%v", p.State())
	}
}

// A late notification may be of a grant that another server asked for meanwhile, and would give back.
func TestAGrantThatIsHeardOfBecomesOnesOwn(t *testing.T) {
	s, n := names(t)
	n.Ask(s.now, named(7))
	s.sends("ask7")
	s.m.Failed(s.now, unknown)
	s.m.Notify(s.now, protocol.Notification{Grants: []protocol.Grant{{ID: named(7).Wish.ID, Token: 1}}})
	s.later(time.Second)
	if c := s.sends("fence renew7"); !c.Requests[0].Mine {
		t.Error("it stays the other server's, which may give it back")
	}
}
