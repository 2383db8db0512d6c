package client

import (
	"testing"
	"time"

	"sema/engine"
	"sema/internal/fixture/expect"
	"sema/internal/protocol"
)

// keepsPermits configures a machine to keep released permits.
func keepsPermits(c *Config) { c.Keep = 5 * time.Second }

func (s *story) acquireN(weight int) *Acquisition {
	a := &Acquisition{}
	s.m.Acquire(s.now, a, weight, true)
	return a
}

func TestAResumedPermitIsNotPassedOn(t *testing.T) {
	s := begin(t, keepsPermits)
	id := s.hold()
	a := &Acquisition{}
	s.m.Resume(s.now, a, id)
	s.answers(s.sends("renew1"))
	s.happened("granted")
	s.other(protocol.Request{Kind: protocol.Revoke, ID: id}) // which is told to the client that made it
	s.m.Release(s.now, a)
	b := s.acquireN(1)
	if b.State() == Held {
		t.Error("a revoked permit went on to the next caller")
	}
}

func TestAPermitThatItsOwnClientReleasedByIDIsNotPassedOn(t *testing.T) {
	s := begin(t, keepsPermits)
	a := s.acquire()
	s.answers(s.sends("ask1"))
	s.m.Do(s.now, &Order{}, protocol.Request{Kind: protocol.Release, ID: a.ID()})
	c, _ := s.m.Next(s.now)
	s.answers(c)
	s.hold() // another client has it now
	s.m.Release(s.now, a)
	if b := s.acquireN(1); b.State() == Held {
		t.Error("a permit that was given back by its id is given out again")
	}
}

func TestARevocationDuringARenewalIsNotForgotten(t *testing.T) {
	s := begin(t, keepsPermits)
	a := s.acquire()
	s.answers(s.sends("ask1"))
	s.happened("granted")
	s.later(9 * time.Second)
	reply := s.step("me", s.sends("renew1")) // still on its way
	s.other(protocol.Request{Kind: protocol.Revoke, ID: a.ID()})
	s.told()
	s.m.Answer(s.now, reply)
	s.answers(s.sends("renew1"))
	s.happened("lost")
}

func TestARevocationDuringTheFirstAskIsNotForgotten(t *testing.T) {
	s := begin(t, keepsPermits)
	a := s.acquire()
	reply := s.step("me", s.sends("ask1"))
	s.other(protocol.Request{Kind: protocol.Revoke, ID: a.ID()})
	s.told()
	s.m.Answer(s.now, reply)
	s.answers(s.sends("renew1"))
	s.happened("granted lost")
}

// An acquisition that does not wait asks again while a recalled permit is on
// its way back. A failed call meanwhile does not end it.
func TestWhatIsRecalledIsAskedForThoughACallFails(t *testing.T) {
	s := begin(t, nil)
	s.later(time.Hour)
	a := &Acquisition{}
	s.m.Acquire(s.now, a, 1, false)
	s.sends("ask1")
	s.m.Answer(s.now, protocol.Reply{Limit: 1, Answers: []protocol.Answer{{Status: protocol.Refused}}, Recalled: true})
	s.m.Do(s.now, &Order{}, protocol.Request{Kind: protocol.SetLimit, Limit: 1})
	s.sends("limit0")
	s.later(time.Millisecond)
	s.m.Failed(s.now, refused)
	s.happened("")
	s.later(maxPause)
	s.answers(s.sends("limit0 ask1"))
	s.happened("answered granted")
}

func TestSparedTicketsOfAnotherWeightHoldUpNobody(t *testing.T) {
	s := begin(t, func(c *Config) { c.Keep, c.Limit = 5*time.Second, 2 })
	held := s.acquireN(1)
	s.answers(s.sends("ask1"))
	heavy := []*Acquisition{s.acquireN(2), s.acquireN(2)}
	s.answers(s.sends("ask2 ask3"))
	for _, a := range heavy {
		s.m.Cancel(s.now, a)
	}
	light := s.acquireN(1)
	if c, ok := s.m.Next(s.now); ok {
		s.answers(c)
	}
	if light.State() != Held {
		t.Errorf("state %d with half of the limit free and nobody waiting", light.State())
	}
	_ = held
}

func TestASlotBeyondASmallerLimitIsNotGivenOutAgain(t *testing.T) {
	s := begin(t, func(c *Config) { c.Keep, c.Limit, c.Slots = 5*time.Second, 2, true })
	low, high := s.acquire(), s.acquire()
	s.answers(s.sends("ask1 ask2"))
	s.other(protocol.Request{Kind: protocol.SetLimit, Limit: 1})
	s.told()
	s.m.Release(s.now, low)
	s.answers(s.sends("release1"))
	s.m.Release(s.now, high)
	if next := s.acquire(); next.State() == Held {
		t.Errorf("slot %d of a semaphore of limit 1 is given out", next.Slot())
	}
}

func TestWhatIsKeptIsRefusedToAStrictCallerOfAnotherLimit(t *testing.T) {
	s := begin(t, func(c *Config) { c.Keep, c.Strict = 5*time.Second, true })
	a := s.acquire()
	s.answers(s.sends("ask1"))
	s.other(protocol.Request{Kind: protocol.SetLimit, Limit: 2})
	s.later(9 * time.Second)
	s.answers(s.sends("renew1")) // the reply says so
	s.m.Release(s.now, a)
	if next := s.acquire(); next.State() == Held {
		t.Error("granted with another limit stored")
	}
}

func TestASparedTicketIsAskedForAgainLikeOthers(t *testing.T) {
	s := begin(t, keepsPermits)
	held := s.acquire()
	s.answers(s.sends("ask1"))
	waits, gone := s.acquire(), s.acquire()
	s.answers(s.sends("ask2 ask3"))
	s.m.Release(s.now, held) // to the one that waits; its ticket is spare now, or the other's
	s.m.Cancel(s.now, gone)
	s.m.Notify(s.now, protocol.Notification{Ask: true}) // they may be gone
	s.acquire()
	c, _ := s.m.Next(s.now)
	asks := 0
	for _, r := range c.Requests {
		if r.Kind == protocol.Ask {
			asks++
		}
	}
	if asks != 1 {
		t.Errorf("%d asks leave for a caller whose ticket may be gone: %+v", asks, c.Requests)
	}
	_ = waits
}

func TestACallIsNotLostToAClaimThatNobodyWants(t *testing.T) {
	s := begin(t, keepsPermits)
	held := s.acquire()
	s.answers(s.sends("ask1"))
	a := s.acquire()
	s.sends("ask2")
	s.m.Cancel(s.now, a)
	s.m.Failed(s.now, unknown)
	s.later(minPause)
	c, ok := s.m.Next(s.now)
	if !ok || len(c.Requests) != 1 || c.Requests[0].Kind != protocol.Release {
		t.Errorf("sends %+v, want the release of what may be queued", c.Requests)
	}
	_ = held
}

// While nobody else waits, the engine need not know that a ticket has another caller now. Then a caller of
// another client asks, who came before that one.
func TestWhoHasATicketIsToldWhenOthersWait(t *testing.T) {
	s := begin(t, keepsPermits)
	s.acquire()
	s.answers(s.sends("ask1"))
	first := s.acquire()
	s.answers(s.sends("ask2"))
	s.later(time.Second)
	s.m.Cancel(s.now, first)
	s.acquire() // has its ticket
	s.sends("")
	s.other(protocol.Request{Kind: protocol.Ask, ID: engine.ID{Client: "other", Number: 1, Weight: 1}, Limit: 1, Lease: time.Minute, Ticket: time.Minute, Waited: 500 * time.Millisecond, Wait: true})
	s.told()
	s.answers(s.sends("ask2"))
	if st := s.ledger.State(s.now.Microseconds()); len(st.Waiters) != 2 || st.Waiters[0].ID != "other-1-1" {
		t.Errorf("in this order wait %+v", st.Waiters)
	}
}

// The time to look comes while the only ticket has lost its caller. The next caller gets the ticket, and the look is not forgotten.
func TestATimeToLookMeetsATicketWithoutACaller(t *testing.T) {
	s := begin(t, keepsPermits)
	s.acquire()
	s.answers(s.sends("ask1"))
	first := s.acquire()
	s.answers(s.sends("ask2"))
	s.m.Notify(s.now, protocol.Notification{Recheck: time.Second})
	s.later(time.Second - time.Millisecond)
	s.m.Cancel(s.now, first)
	s.later(2 * time.Millisecond)
	s.acquire() // has its ticket
	s.sends("")
	s.later(time.Second)
	s.sends("ask2")
}

// A hand-off came so late that it is to be renewed, and its caller gives up. Then the ask that travelled has a ticket anew: it is
// for nobody, and is given back after a moment.
func TestATicketIsQueuedAnewForNobody(t *testing.T) {
	s := begin(t, keepsPermits)
	s.acquire()
	s.answers(s.sends("ask1"))
	a := s.acquire()
	s.answers(s.sends("ask2"))
	s.later(6 * time.Second)
	c := s.sends("ask2")
	s.m.Notify(s.now, protocol.Notification{Grants: []protocol.Grant{{ID: c.Requests[0].ID, Token: 7, Slot: -1, Ticket: a.claim.ticket, Unsure: true}}})
	s.m.Cancel(s.now, a)
	s.answers(c)
	expect.OK(t, s.m.Audit())
	s.later(maxSpare)
	s.sends("release2")
}

// The engine's clock steps back between an ask whose answer is lost and the next one. More than a lease is left of the permit then, and
// the next renewal ends that: only the lease that was asked for is trusted.
func TestNoMoreThanTheLeaseIsTrusted(t *testing.T) {
	s := begin(t, nil)
	a := s.acquire()
	s.step("me", s.sends("ask1"))
	s.m.Failed(s.now, unknown)
	s.later(minPause)
	sent := s.now
	reply := s.step("me", s.sends("fence ask1"))
	reply.Answers[0].Lease = time.Hour
	s.m.Answer(s.now, reply)
	if want := sent + s.m.cfg.Lease - s.m.cfg.Margin; a.Valid() != want {
		t.Errorf("trusted until %v, want %v", a.Valid(), want)
	}
}

// The engine counts each permit that takes of a rate. So a caller that waits for one does not ask to pass it on, because
// the engine would have to write that down. Callers that wait for a permit without a rate do ask.
func TestPermitsThatTakeOfARateAreNotAskedToStay(t *testing.T) {
	s := begin(t, func(c *Config) { c.Pools = "rpm=600/1m" })
	for i, takes := range []engine.Pools{"rpm=1", "rpm=1", "rpm=1", "", ""} {
		a := &Acquisition{}
		a.Takes = takes
		s.m.Acquire(s.now, a, 1, true)
		c, _ := s.m.Next(s.now)
		if (c.Keep > 0) != (i == 4) { // the one before it was alone
			t.Errorf("call %d asks to keep permits for %v", i, c.Keep)
		}
		s.answers(c)
	}
}

func TestATicketIsGivenBackWhenWhatWasAllowedIsOver(t *testing.T) {
	s := begin(t, keepsPermits)
	s.acquire()
	s.answers(s.sends("ask1"))
	gone := s.acquire()
	s.answers(s.sends("ask2"))
	s.now = s.m.keeping.until // a caller of another client may have come since
	s.m.Cancel(s.now, gone)
	s.acquire()
	s.sends("release2 ask3")
}
