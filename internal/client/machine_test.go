package client

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"sema/engine"
	"sema/internal/ledger"
	"sema/internal/protocol"
)

// story is a machine, a ledger, and what passes between them by hand.
type story struct {
	*testing.T
	m      *Machine
	ledger *ledger.Ledger
	now    time.Duration
	others uint64 // calls of another client's
}

func begin(t *testing.T, change func(*Config)) *story {
	cfg := Config{Client: "me", Terms: Terms{Limit: 1, Lease: 30 * time.Second, Renew: 9 * time.Second, Margin: 3 * time.Second}}
	if change != nil {
		change(&cfg)
	}
	return &story{T: t, m: New(cfg), ledger: &ledger.Ledger{}, now: time.Second}
}

// other is a step of another client's.
func (s *story) other(r protocol.Request) protocol.Answer {
	s.Helper()
	s.others++
	return s.step("other", protocol.Call{Number: s.others, Requests: []protocol.Request{r}}).Answers[0]
}

func (s *story) step(client string, c protocol.Call) protocol.Reply {
	for i := range c.Requests {
		if client == "me" && s.m.cfg.Lasting { // as a session does that said so
			c.Requests[i].Ticket = 0
		}
	}
	return s.ledger.Step(s.now.Microseconds(), client, engine.Client{}, c)
}

// hold takes all there is for another client, for a long time.
func (s *story) hold() engine.ID {
	id := engine.ID{Client: "other", Number: 1, Weight: 1}
	s.other(protocol.Request{Kind: protocol.Ask, ID: id, Limit: 1, Lease: time.Hour})
	return id
}

func (s *story) acquire() *Acquisition {
	a := &Acquisition{}
	s.m.Acquire(s.now, a, 1, true)
	return a
}

// sends is the call that leaves now, as text.
func (s *story) sends(want string) protocol.Call {
	s.Helper()
	c, _ := s.m.Next(s.now)
	c.Requests = slices.Clone(c.Requests)
	var words []string
	if c.Fence {
		words = append(words, "fence")
	}
	for _, r := range c.Requests {
		words = append(words, fmt.Sprintf("%s%d", [...]string{"", "ask", "renew", "release", "revoke", "limit"}[r.Kind], r.ID.Number))
	}
	if got := strings.Join(words, " "); got != want {
		s.Fatalf("sends %q, want %q", got, want)
	}
	return c
}

// answers carries out a call in the ledger, and gives the reply to the machine.
func (s *story) answers(c protocol.Call) {
	reply := s.step("me", c)
	s.m.Answer(s.now, reply)
}

// written is how many permits and tickets the ledger has, those that are over included.
func (s *story) written() (permits, tickets int) {
	all := s.ledger.Save()
	return len(all.Holders), len(all.Waiters)
}

// told delivers the ledger's notification.
func (s *story) told() { s.m.Notify(s.now, *s.ledger.Notifications()["me"]) }

// happened are the events since last asked.
func (s *story) happened(want string) {
	s.Helper()
	var words []string
	for _, e := range s.m.Events() {
		words = append(words, [...]string{"", "granted", "denied", "queued", "lost", "answered", "failed", "limit"}[e.Kind])
	}
	if got := strings.Join(words, " "); got != want {
		s.Fatalf("happened %q, want %q", got, want)
	}
}

func (s *story) later(d time.Duration) {
	s.now += d
	s.m.Tick(s.now)
}

var (
	unknown = &engine.Error{Op: "test", Temporary: true, Err: errors.New("no answer")}
	refused = &engine.Error{Op: "test", Temporary: true, NotExecuted: true, Err: errors.New("refused")}
)

func TestAPermitIsRenewedInThirdsAndReleased(t *testing.T) {
	s := begin(t, nil)
	a := s.acquire()
	s.answers(s.sends("ask1"))
	s.happened("granted")
	for range 10 {
		s.later(9 * time.Second)
		s.answers(s.sends("renew1"))
	}
	s.happened("")
	if left := a.Valid() - s.now; left != 27*time.Second {
		t.Errorf("valid for %v, want the lease less the margin", left)
	}
	s.m.Release(s.now, a)
	s.answers(s.sends("release1"))
	s.happened("answered")
	if !s.m.sender.idle() {
		t.Error("something is left to do")
	}
}

// After a hand-off as well, two renewals may fail: an outage of a quarter of the
// lease loses nothing, whenever it begins.
func TestAHandOffLeavesTimeForTwoRenewals(t *testing.T) {
	s := begin(t, nil)
	other := s.hold()
	a := s.acquire()
	s.answers(s.sends("ask1"))
	s.later(5*time.Second - time.Millisecond) // it would ask again now
	s.other(protocol.Request{Kind: protocol.Release, ID: other})
	s.told()
	s.happened("queued granted")
	if left := a.Valid() - s.now; left < 30*time.Second/3 {
		t.Errorf("valid for %v of a lease of 30s", left)
	}
}

// A caller that hears late of a hand-off gets a whole lease, or waits on.
func TestAHandOffThatIsHeardOfLateIsRenewedFirst(t *testing.T) {
	s := begin(t, nil)
	other := s.hold()
	a := s.acquire()
	s.answers(s.sends("ask1"))
	s.later(5*time.Second - time.Millisecond)
	s.other(protocol.Request{Kind: protocol.Release, ID: other})
	s.later(5 * time.Second) // the notification is on its way, and no ask either
	s.told()
	s.happened("queued")
	s.answers(s.sends("renew1"))
	s.happened("granted")
	if left := a.Valid() - s.now; left < 20*time.Second {
		t.Errorf("valid for %v of a lease of 30s", left)
	}
}

// The process stood still while its turn came and lapsed: the wait goes on.
func TestAHandOffThatLapsedIsAskedForAgain(t *testing.T) {
	s := begin(t, nil)
	other := s.hold()
	a := s.acquire()
	s.answers(s.sends("ask1"))
	s.other(protocol.Request{Kind: protocol.Release, ID: other})
	s.now += 25 * time.Second
	s.told()
	s.happened("queued")
	s.answers(s.sends("renew1"))
	s.happened("")
	c := s.sends("release1 ask2")
	if c.Requests[1].Waited != 25*time.Second {
		t.Errorf("waited %v: its place is lost", c.Requests[1].Waited)
	}
	s.answers(c)
	s.happened("granted")
	if a.State() != Held {
		t.Error("not held")
	}
}

// A notification tells of a grant that lapsed, and came too late; meanwhile a
// late ask was granted under the same id.
func TestALateNotificationDoesNotHideTheGrantAfterIt(t *testing.T) {
	s := begin(t, func(c *Config) { c.Slots = true })
	other := s.hold()
	a := s.acquire()
	late := s.sends("ask1")
	s.answers(late)
	s.other(protocol.Request{Kind: protocol.Release, ID: other})
	news := *s.ledger.Notifications()["me"]
	s.now += 21 * time.Second // the ticket's life
	s.step("me", late)
	s.m.Notify(s.now, news)
	s.answers(s.sends("renew1"))
	s.happened("queued granted")
	if st := s.ledger.State(s.now.Microseconds()); st.Holders[0].Token != a.Token() {
		t.Errorf("token %d, and the ledger has %+v", a.Token(), st.Holders)
	}
}

func TestANotificationOvertakesTheAnswer(t *testing.T) {
	s := begin(t, nil)
	other := s.hold()
	s.acquire()
	c := s.sends("ask1")
	reply := s.step("me", c)
	s.other(protocol.Request{Kind: protocol.Release, ID: other})
	s.told()
	s.happened("granted")
	s.m.Answer(s.now, reply) // queued, it says
	s.happened("")
	if !s.m.sender.idle() {
		t.Error("something is left to do")
	}
}

// A smaller limit has made the ticket too heavy, and is told before the answer
// that the ticket waits.
func TestTheWordToAskOvertakesTheFirstAnswer(t *testing.T) {
	s := begin(t, func(c *Config) { c.Limit = 2 })
	s.other(protocol.Request{Kind: protocol.SetLimit, Limit: 2})
	s.hold()
	s.acquireN(2)
	reply := s.step("me", s.sends("ask1"))
	s.other(protocol.Request{Kind: protocol.SetLimit, Limit: 1})
	s.told()
	s.m.Answer(s.now, reply)
	s.answers(s.sends("ask1"))
	s.happened("queued limit denied")
}

// The engine's clock steps over the end of a hand-off that its client has just heard of, so that its ask has
// another grant. The permit was not held for too long.
func TestAnotherGrantIsNoHoldThatLastedTooLong(t *testing.T) {
	s := begin(t, func(c *Config) { c.MaxHold = time.Second })
	other := s.hold()
	s.acquire()
	s.answers(s.sends("ask1"))
	s.other(protocol.Request{Kind: protocol.Release, ID: other})
	s.later(10 * time.Second)
	ask := s.sends("ask1")
	s.told()
	s.happened("queued granted")
	reply := s.ledger.Step((s.now + time.Minute).Microseconds(), "me", engine.Client{}, ask)
	s.m.Answer(s.now, reply)
	if e := s.m.Events(); len(e) != 1 || e[0].Kind != Lost || e[0].Reason != NotRenewed {
		t.Errorf("%+v", e)
	}
}

// The word to go on may come before the answer to the ask of the only ticket, and before the word of a
// lease's end, which is older.
func TestTheWordToGoOnIsHeeded(t *testing.T) {
	for _, lasting := range []bool{false, true} {
		s := begin(t, func(c *Config) { c.Lasting, c.Base = lasting, time.Now() })
		s.hold()
		s.acquire()
		ask := s.sends("ask1")
		reply := s.step("me", ask)
		reply.Recheck = 0 // as of engines that watch leases themselves
		s.m.Notify(s.now, protocol.Notification{Recheck: protocol.AtOnce})
		s.later(time.Millisecond)
		s.m.Answer(s.now, reply)
		s.answers(s.sends("ask1"))
		s.m.Notify(s.now, protocol.Notification{Recheck: protocol.AtOnce})
		s.m.Notify(s.now, protocol.Notification{Recheck: 20 * time.Second})
		s.sends("ask1")
	}
}

// The ticket of a caller that gave up has its label, and goes to no caller with another one.
func TestTicketsPassBetweenCallersOfOneLabel(t *testing.T) {
	s := begin(t, func(c *Config) { c.Keep = time.Second })
	s.hold()
	acquire := func(label string) *Acquisition {
		a := &Acquisition{Label: label}
		s.m.Acquire(s.now, a, 1, true)
		return a
	}
	one := acquire("one")
	s.answers(s.sends("ask1"))
	acquire("two")
	s.answers(s.sends("ask2"))
	acquire("")
	s.m.Cancel(s.now, one)
	s.answers(s.sends("release1 ask3"))
	for _, w := range s.ledger.State(s.now.Microseconds()).Waiters {
		if want := map[string]string{"me-2-1": "two", "me-3-1": ""}[w.ID]; w.Client.Label != want {
			t.Errorf("%s has the label %q, want %q", w.ID, w.Client.Label, want)
		}
	}
}

// A step grants 32 tickets at the most. One ask makes the next step. Asking for all tickets after each
// step took Redis 50 times as long.
func TestAHandOffOfManyGoesOnWithOneAskEach(t *testing.T) {
	const n = 500
	s := begin(t, nil)
	other := s.hold()
	for i := range n {
		a := &Acquisition{Target: protocol.Target{Key: engine.Key(fmt.Sprint(i))}}
		s.m.Acquire(s.now, a, 1, true)
	}
	deliver := func() (requests int) {
		for {
			s.later(time.Millisecond)
			c, ok := s.m.Next(s.now)
			if !ok {
				return requests
			}
			requests += len(c.Requests)
			s.answers(c)
		}
	}
	deliver()
	s.other(protocol.Request{Kind: protocol.SetLimit, Limit: n})
	s.told()
	asks := deliver()
	s.other(protocol.Request{Kind: protocol.Release, ID: other})
	granted := 0
	for _, e := range s.m.Events() {
		if e.Kind == Granted {
			granted++
		}
	}
	if granted < n-1 || asks > n/16 {
		t.Errorf("%d of %d granted, with %d asks", granted, n, asks)
	}
}

// The timer fires between a notification and the answer that it overtook.
func TestARenewalIsNotForgottenWhileTheAskTravels(t *testing.T) {
	s := begin(t, nil)
	other := s.hold()
	a := s.acquire()
	c := s.sends("ask1")
	reply := s.step("me", c)
	s.other(protocol.Request{Kind: protocol.Release, ID: other})
	s.told()
	s.later(time.Millisecond)
	s.m.Answer(s.now, reply)
	for s.m.sender.idle() {
		at, _ := s.m.Wake()
		if at >= a.Valid() {
			t.Fatalf("looks at %v, and the permit is valid until %v", at, a.Valid())
		}
		s.later(at - s.now)
	}
	s.sends("renew1")
}

func TestWhatIsGivenUpIsGivenBackOnceItsCallIsBack(t *testing.T) {
	s := begin(t, nil)
	a := s.acquire()
	c := s.sends("ask1")
	s.m.Cancel(s.now, a)
	s.sends("")
	s.answers(c)
	s.happened("")
	s.answers(s.sends("release1"))
	if permits, _ := s.written(); permits != 0 || !s.m.sender.idle() {
		t.Errorf("%d held", permits)
	}
}

func TestWhatWasNeverSentNeedsNoRelease(t *testing.T) {
	s := begin(t, nil)
	s.m.Cancel(s.now, s.acquire())
	s.sends("")
	if !s.m.sender.idle() {
		t.Error("something is left to do")
	}
}

// A copy of a call that arrives after newer ones changes nothing.
func TestAFenceFollowsACallOfUnknownOutcome(t *testing.T) {
	s := begin(t, nil)
	a := s.acquire()
	late := s.sends("ask1")
	s.m.Failed(s.now, unknown)
	s.m.Cancel(s.now, a)
	s.later(20 * time.Millisecond)
	s.answers(s.sends("fence release1"))
	if reply := s.step("me", late); len(reply.Answers) > 0 {
		t.Errorf("the late copy was carried out: %+v", reply)
	}
	if permits, _ := s.written(); permits != 0 {
		t.Errorf("%d held by nobody", permits)
	}
	s.acquire()
	s.sends("ask2") // the fence stands
}

func TestAWishThatNeverReachesTheEngineFailsAfterAWhile(t *testing.T) {
	s := begin(t, nil)
	a := s.acquire()
	told := 0
	for a.State() == Asking {
		s.sends("ask1")
		s.m.Failed(s.now, refused)
		s.later(maxPause)
		told++
	}
	s.happened(strings.Repeat("failed ", told-1) + "denied")
	if d := s.now - time.Second; d < patience || d > patience+2*maxPause {
		t.Errorf("after %v", d)
	}
	s.sends("") // nothing was carried out, so nothing is given back
}

// The engine neither answers nor refuses: a caller fails after three seconds, and
// not when the call is given up.
func TestAStalledCallFailsThoseWhoWaitForIt(t *testing.T) {
	s := begin(t, func(c *Config) { c.Limit = 2 })
	first := s.acquire()
	s.sends("ask1")
	s.later(time.Second)
	late := &Acquisition{}
	s.m.Acquire(s.now, late, 1, false)
	o := &Order{}
	s.m.Do(s.now, o, protocol.Request{Kind: protocol.SetLimit, Limit: 1})
	s.happened("")
	end := func(want string, after time.Duration) {
		t.Helper()
		for began := s.now; len(s.m.events) == 0; {
			at, ok := s.m.Wake()
			if !ok || at > began+after {
				t.Fatalf("nothing for %v", after)
			}
			s.later(max(1, at-s.now))
		}
		s.happened(want)
	}
	end("denied", 2*time.Second)
	end("answered denied", 1250*time.Millisecond)
	if first.State() != Ended || late.State() != Ended {
		t.Errorf("%v and %v", first.State(), late.State())
	}
	s.m.Failed(s.now, unknown)
	s.later(maxPause)
	s.answers(s.sends("fence release1"))
}

// A busy engine is a queue: a caller waits as long as there are signs of life, whatever its calls come to. When there are
// none any more it fails after three and a half seconds.
func TestABusyEngineIsWaitedFor(t *testing.T) {
	busy := &engine.Error{Op: "test", Temporary: true, Busy: true, Err: errors.New("no place")}
	for what, fails := range map[string]bool{"calls that fail": true, "a call without an answer": false} {
		s := begin(t, func(c *Config) { c.Probes = true })
		a := s.acquire()
		lives, deaf := true, time.Duration(0) // since when nothing lives
		ends := never                         // of a probe
		for a.State() == Asking && s.now < time.Hour {
			if s.m.Probe() {
				ends = s.now + ProbeTime // a sign of life may be as late
			}
			if _, ok := s.m.Next(s.now); ok && fails {
				s.m.Failed(s.now, busy)
			}
			at, _ := s.m.Wake()
			if s.now = max(s.now+1, min(at, ends)); s.now >= ends {
				ends = never
				s.m.Probed(s.now, lives)
				if lives = s.now < time.Minute; !lives && deaf == 0 {
					deaf = s.now
				}
			}
			s.m.Tick(s.now)
		}
		if d := s.now - deaf; a.State() != Ended || deaf == 0 || d < patience || d > quiet+ProbeTime+2*maxPause {
			t.Errorf("%s: the caller is %v at %v, and nothing has lived for %v", what, a.State(), s.now, d)
		}
	}
}

// An engine that refuses is not just busy, though it lives.
func TestARefusalIsNoSignOfLife(t *testing.T) {
	s := begin(t, func(c *Config) { c.Probes = true })
	for a := s.acquire(); a.State() == Asking && s.now < time.Minute; s.later(maxPause) {
		s.sends("ask1")
		s.m.Failed(s.now, refused)
		if s.m.Probe() {
			t.Fatal("it is asked for a sign of life")
		}
	}
	if d := s.now - time.Second; d > patience+2*maxPause {
		t.Errorf("after %v", d)
	}
}

// A stall of many calls is no longer, if the first call that stalls fails when its time is up, and a caller has
// come meanwhile: it fails three seconds after it came, and not after the next call.
func TestAStallOfManyCallsIsNoLonger(t *testing.T) {
	s := begin(t, nil)
	first := s.acquire()
	s.sends("ask1")
	s.later(200 * time.Millisecond)
	s.m.Cancel(s.now, first)
	second := s.acquire()
	came := s.now
	s.later(2800 * time.Millisecond)
	s.m.Failed(s.now, refused)
	for second.State() != Ended && s.now < came+10*time.Second {
		at, ok := s.m.Wake()
		if !ok {
			t.Fatal("nothing is to happen any more")
		}
		s.later(max(1, at-s.now))
		s.m.Next(s.now) // and no answer comes
	}
	if took := s.now - came; took > patience+maxPause {
		t.Errorf("it failed %v after it came", took)
	}
}

// An engine that refuses what is asked may take the next thing.
func TestAfterARefusalTheNextCallerAsksSoon(t *testing.T) {
	s := begin(t, nil)
	s.acquire()
	s.sends("ask1")
	s.m.Failed(s.now, &engine.Error{Op: "test", NotExecuted: true, Err: errors.New("wrong key")})
	s.happened("denied")
	for n := range 10 { // and so long the pause would be
		s.acquire()
		s.sends("")
		s.later(minPause)
		s.sends(fmt.Sprint("ask", n+2))
		s.m.Failed(s.now, &engine.Error{Op: "test", NotExecuted: true, Err: errors.New("wrong key")})
		s.happened("denied")
	}
	s.acquire()
	s.later(minPause)
	s.answers(s.sends("ask12"))
	s.happened("granted")
}

func TestARemovalWhoseAnswerIsLostSucceeds(t *testing.T) {
	s := begin(t, nil)
	s.other(protocol.Request{Kind: protocol.SetLimit, Limit: 1})
	for _, want := range []protocol.Status{protocol.Done, protocol.Gone} {
		s.m.Do(s.now, &Order{}, protocol.Request{Kind: protocol.Remove})
		c, _ := s.m.Next(s.now)
		if want == protocol.Done { // carried out, and the answer is lost
			s.step("me", c)
			s.m.Failed(s.now, unknown)
			s.later(time.Second)
			c, _ = s.m.Next(s.now)
		}
		s.answers(c)
		if events := s.m.Events(); len(events) != 1 || events[0].Answer.Status != want {
			t.Errorf("%+v; want one answer of status %v", events, want)
		}
	}
}

// In an outage the same releases fill every call. Those for whom there is no room
// are not kept for longer than others.
func TestWhatHasNoRoomInAnOutageFailsAfterAWhile(t *testing.T) {
	s := begin(t, nil)
	for n := range maxRequests {
		s.m.sender.giveBack(&claim{id: engine.ID{Client: "me", Number: uint64(1000 + n), Weight: 1}})
	}
	a, o := s.acquire(), &Order{}
	s.m.Do(s.now, o, protocol.Request{Kind: protocol.SetLimit, Limit: 2})
	for a.State() == Asking || !o.told {
		if c, ok := s.m.Next(s.now); ok && len(c.Requests) != maxRequests {
			t.Fatalf("%d requests", len(c.Requests))
		}
		s.m.Failed(s.now, refused)
		s.later(maxPause)
		if d := s.now - time.Second; d > patience+2*maxPause {
			t.Fatalf("after %v the wish is %d, the order told: %v", d, a.State(), o.told)
		}
	}
	s.happened("answered denied")
	for { // they were never sent, and never are
		c, ok := s.m.Next(s.now)
		if !ok {
			break
		}
		for _, r := range c.Requests {
			if r.Kind != protocol.Release {
				t.Fatalf("%+v", r)
			}
		}
		s.answers(c)
	}
}

// A patient caller that waits outlives any outage, and has its turn afterwards; one
// that is refused for good does not wait for ever.
func TestAPatientCallerOutlivesAnOutage(t *testing.T) {
	for _, patient := range []bool{false, true} {
		for _, failure := range []error{unknown, refused, &engine.Error{Op: "test", Err: errors.New("wrong token")}} {
			s := begin(t, func(c *Config) { c.Patient = patient })
			held := s.hold()
			a := s.acquire()
			s.answers(s.sends("ask1"))
			if a.State() != Waiting {
				t.Fatal(a.State())
			}
			for end := s.now + 3*s.m.cfg.Lease; s.now < end; s.later(maxPause) {
				if _, ok := s.m.Next(s.now); ok {
					s.m.Failed(s.now, failure)
				}
			}
			waits := a.State() == Waiting
			if waits != (patient && failure.(*engine.Error).Temporary) {
				t.Errorf("patient %v, %v: it is %v", patient, failure, a.State())
			}
			if !waits {
				continue
			}
			s.other(protocol.Request{Kind: protocol.Release, ID: held})
			for a.State() != Held {
				if c, ok := s.m.Next(s.now); ok {
					s.answers(c)
				}
				s.later(time.Second)
				if s.now > time.Hour {
					t.Fatal("it is never granted")
				}
			}
		}
	}
}

// A herd is slower than three seconds to get its first answers.
func TestAPatientCallerOutlivesAnOutageBeforeItHasAPlace(t *testing.T) {
	for _, patient := range []bool{false, true} {
		for _, wait := range []bool{false, true} {
			for _, failure := range []error{unknown, refused, &engine.Error{Op: "test", Err: errors.New("wrong token")}} {
				s := begin(t, func(c *Config) { c.Patient = patient })
				a := &Acquisition{}
				s.m.Acquire(s.now, a, 1, wait)
				for end := s.now + 3*s.m.cfg.Lease; s.now < end; s.later(maxPause) {
					if _, ok := s.m.Next(s.now); ok {
						s.m.Failed(s.now, failure)
					}
				}
				outlives := a.State() == Asking
				if outlives != (patient && wait && failure.(*engine.Error).Temporary) {
					t.Errorf("patient %v, wait %v, %v: it is %v", patient, wait, failure, a.State())
				}
				if outlives {
					c, _ := s.m.Next(s.now)
					s.answers(c)
					if a.State() != Held {
						t.Errorf("it is %v when the engine is back", a.State())
					}
				}
			}
		}
	}
}

func TestTheNewestLimitIsSaidUntilAnAskIsAnswered(t *testing.T) {
	s := begin(t, func(c *Config) { c.Newest = true })
	says := func(want bool) protocol.Call {
		t.Helper()
		c, _ := s.m.Next(s.now)
		for _, r := range c.Requests {
			if r.Kind == protocol.Ask && r.Newest != want {
				t.Fatalf("an ask says newest: %v, want %v", r.Newest, want)
			}
		}
		return c
	}
	s.acquire()
	s.acquire()
	says(true)
	s.m.Failed(s.now, unknown)
	s.later(time.Second)
	s.answers(says(true))
	s.acquire()
	s.answers(says(false))
}

func TestReleasesGoBeforeTheAsksBehindThem(t *testing.T) {
	s := begin(t, func(c *Config) { c.Limit = 2 })
	a, b := s.acquire(), s.acquire()
	s.answers(s.sends("ask1 ask2"))
	s.happened("granted granted")
	s.acquire()
	s.later(9 * time.Second)
	s.m.Release(s.now, a)
	s.acquire()
	s.answers(s.sends("release1 renew2 ask3 ask4"))
	s.happened("answered granted queued")
	_ = b
}

func TestAPermitIsNotHeldLongerThanAllowed(t *testing.T) {
	s := begin(t, func(c *Config) { c.MaxHold = 40 * time.Second })
	a := s.acquire()
	s.answers(s.sends("ask1"))
	s.happened("granted")
	for a.State() == Held {
		s.later(time.Second)
		if c, ok := s.m.Next(s.now); ok {
			s.answers(c)
		}
	}
	if s.now != 41*time.Second {
		t.Errorf("held for %v", s.now-time.Second)
	}
	if _, end, _ := s.ledger.Permit(s.now.Microseconds(), a.ID()); end != (44 * time.Second).Microseconds() {
		t.Errorf("its lease ends at %d, one margin later is wanted", end)
	}
}

// A permit that is handed over late in its ticket's life is held for as long as any
// other, and the engine has it no longer than that.
func TestAHandOffIsHeldAsLongAsAllowed(t *testing.T) {
	s := begin(t, func(c *Config) { c.MaxHold = 2 * time.Second })
	id := s.hold()
	a := s.acquire()
	s.answers(s.sends("ask1"))
	s.happened("queued")
	s.later(4900 * time.Millisecond)
	s.other(protocol.Request{Kind: protocol.Release, ID: id})
	s.told()
	s.happened("granted")
	began := s.now
	for a.State() == Held {
		if c, ok := s.m.Next(s.now); ok {
			s.answers(c)
		}
		s.later(100 * time.Millisecond)
	}
	s.happened("lost")
	if held := s.now - began; held != 2*time.Second {
		t.Errorf("held for %v, want MaxHold", held)
	}
	if _, end, _ := s.ledger.Permit(s.now.Microseconds(), a.ID()); end != (began + 5*time.Second).Microseconds() {
		t.Errorf("its lease ends at %d; want it one margin after MaxHold, at %d", end, (began + 5*time.Second).Microseconds())
	}
}

// What a renewal gives is cut to microseconds, and still lasts as long as the permit may
// be held: so it is held too long in the end, and has not failed to be renewed.
func TestARenewalThatIsCutToMicroseconds(t *testing.T) {
	s := begin(t, func(c *Config) { c.MaxHold = 40 * time.Second })
	a := s.acquire()
	c := s.sends("ask1")
	c.Requests[0].Lease -= 10 * time.Second // as if it had been asked before
	s.answers(c)
	s.now += 123 // a part of a microsecond
	var why Reason
	for a.State() == Held {
		s.later(time.Second)
		if c, ok := s.m.Next(s.now); ok {
			s.answers(c)
		}
		for _, e := range s.m.Events() {
			if e.Kind == Lost {
				why = e.Reason
			}
		}
	}
	if why != HeldTooLong {
		t.Errorf("lost, %v; want %v", why, HeldTooLong)
	}
}

// A waiter that may hold for a moment only is in the queue all the time.
func TestAWaiterWithAShortHoldKeepsItsPlace(t *testing.T) {
	for _, hold := range []time.Duration{100 * time.Millisecond, 2 * time.Second, 25 * time.Second} {
		s := begin(t, func(c *Config) { c.MaxHold = hold })
		id := s.hold()
		s.acquire()
		s.answers(s.sends("ask1"))
		s.happened("queued")
		for range 60 {
			s.later(time.Second)
			if c, ok := s.m.Next(s.now); ok {
				s.answers(c)
			}
			if waiting := len(s.ledger.State(s.now.Microseconds()).Waiters); waiting != 1 {
				t.Fatalf("MaxHold %v: %d wait after %v", hold, waiting, s.now)
			}
		}
		s.other(protocol.Request{Kind: protocol.Release, ID: id})
		s.told()
		s.happened("granted")
	}
}

// A server that is away for long costs memory in proportion, and not without
// bound.
func TestWhatIsOwedIsBounded(t *testing.T) {
	s := begin(t, nil)
	for range maxOwed + maxOwed/2 {
		s.m.sender.giveBack(&claim{id: engine.ID{Client: "me", Number: 1, Weight: 1}})
	}
	if n := len(s.m.sender.orders); n > maxOwed {
		t.Errorf("%d releases are owed", n)
	}
}
