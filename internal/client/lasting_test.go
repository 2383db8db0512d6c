package client

import (
	"testing"
	"time"

	"sema/engine"
)

// lasting has an engine keep tickets as long as their process lives.
func lasting(c *Config) { c.Lasting, c.Base = true, time.Unix(1, 0) }

func TestAHandOffToATicketThatLastsIsTrustedAsLongAsItsGrantSays(t *testing.T) {
	s := begin(t, lasting)
	other := s.hold()
	a := s.acquire()
	s.answers(s.sends("ask1"))
	s.later(10 * time.Minute)
	s.sends("") // it need not ask again
	granted := s.now
	s.other(engine.Request{Kind: engine.Release, ID: other})
	news := *s.ledger.Notifications()["me"]
	news.Grants[0].Until = s.m.cfg.Base.Add(granted + 30*time.Second)
	s.later(5 * time.Second)
	s.m.Notify(s.now, news)
	s.happened("queued granted")
	if got := a.Valid() - granted; got != 27*time.Second {
		t.Errorf("trusted until %v after the grant, want the lease less the margin", got)
	}
}

// Nobody notifies a client of what the reply to its own call told.
func TestALostReplyMayHaveToldOfAGrant(t *testing.T) {
	s := begin(t, lasting)
	a, b := s.acquire(), s.acquire()
	s.answers(s.sends("ask1 ask2"))
	s.happened("granted queued")
	s.m.cohort.leave = engine.GiveBack // so that the hand-off is the engine's
	s.m.Release(s.now, a)
	s.step("me", s.sends("release1"))
	s.m.Failed(s.now, unknown)
	s.later(minPause)
	s.answers(s.sends("fence release1 ask2"))
	s.happened("answered granted")
	if b.State() != Held {
		t.Errorf("state %d", b.State())
	}
}

// Others see in the engine how many wait, also where nobody asks again.
func TestTheEngineIsToldHowManyWaitThoughNobodyAsksAgain(t *testing.T) {
	s := begin(t, lasting)
	s.hold()
	counted := func(want int) {
		t.Helper()
		if err := s.m.Audit(); err != nil || s.ledger.Callers("me") != want {
			t.Errorf("the engine counts %d callers, want %d; %v", s.ledger.Callers("me"), want, err)
		}
	}
	all := []*Acquisition{s.acquire()}
	s.answers(s.sends("ask1"))
	all = append(all, s.acquire())
	s.answers(s.sends("ask2"))
	for range 4 {
		all = append(all, s.acquire())
	}
	s.sends("")
	s.later(5 * time.Second)
	s.answers(s.sends("ask1"))
	counted(6)
	for _, a := range all[3:] {
		s.m.Cancel(s.now, a)
	}
	s.sends("") // it was told a moment ago
	counted(6)
	s.later(5 * time.Second)
	s.answers(s.sends("ask1"))
	counted(3)
	s.later(time.Minute)
	s.sends("")
}
