package client

import (
	"testing"
	"time"

	"sema/internal/protocol"
)

// lasting configures an engine that keeps tickets as long as their process lives.
func lasting(c *Config) { c.Lasting, c.Base = true, time.Unix(1, 0) }

func TestAHandOffToATicketThatLastsIsTrustedAsLongAsItsGrantSays(t *testing.T) {
	s := begin(t, lasting)
	other := s.hold()
	a := s.acquire()
	s.answers(s.sends("ask1"))
	s.later(29 * time.Second)
	s.sends("") // it need not ask again yet
	granted := s.now
	s.other(protocol.Request{Kind: protocol.Release, ID: other})
	news := *s.ledger.Notifications()["me"]
	news.Grants[0].Until = s.m.cfg.Base.Add(granted + 30*time.Second)
	s.later(5 * time.Second)
	s.m.Notify(s.now, news)
	s.happened("queued granted")
	if got := a.Valid() - granted; got != 27*time.Second {
		t.Errorf("trusted until %v after the grant, want the lease less the margin", got)
	}
}

// A ticket that lasts is asked for once a lease: only the answer says that it has become too heavy.
func TestATicketThatLastsIsAskedForOnceALease(t *testing.T) {
	s := begin(t, lasting)
	s.hold()
	s.acquire()
	s.answers(s.sends("ask1"))
	s.later(29 * time.Second)
	s.sends("")
	s.later(time.Second)
	s.answers(s.sends("ask1"))
	s.later(29 * time.Second)
	s.sends("")
}

// A client is not notified of grants that the reply to its own call told.
func TestALostReplyMayHaveToldOfAGrant(t *testing.T) {
	s := begin(t, lasting)
	a, b := s.acquire(), s.acquire()
	s.answers(s.sends("ask1 ask2"))
	s.happened("granted queued")
	s.m.keeping.may = false // so that the hand-off is the engine's
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

// A permit is revoked while an ask for its ticket travels, which a hand-off has overtaken: its caller loses it, and gives it
// back itself.
func TestARevocationAnswersAnAskThatAHandOffOvertook(t *testing.T) {
	s := begin(t, lasting)
	other := s.hold()
	a := s.acquire()
	s.answers(s.sends("ask1"))
	s.m.Notify(s.now, protocol.Notification{Ask: true})
	ask := s.sends("ask1")
	s.other(protocol.Request{Kind: protocol.Release, ID: other})
	news := *s.ledger.Notifications()["me"]
	news.Grants[0].Until = s.m.cfg.Base.Add(s.now + 30*time.Second)
	s.m.Notify(s.now, news)
	s.other(protocol.Request{Kind: protocol.Revoke, ID: a.ID()})
	s.m.Answer(s.now, s.step("me", ask))
	s.happened("queued granted lost")
	s.sends("")
	if permits, _ := s.written(); permits != 1 {
		t.Errorf("%d permits: it was given back while its caller worked", permits)
	}
}
