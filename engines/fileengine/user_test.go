package fileengine

import (
	"context"
	"fmt"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"sema/engine"
	"sema/internal/fixture/expect"
	"sema/internal/protocol"
)

// user is a minimal client: it asks, waits for the notification, and releases.
type user struct {
	engine  *Engine
	session protocol.Session
	number  atomic.Uint64
	limit   int
	lease   time.Duration
	told    chan protocol.Notification
	came    map[engine.ID]time.Time // the time of the first ask
}

const testLease = time.Minute

func newUser(e *Engine, name string, limit int) (*user, error) {
	u := &user{engine: e, limit: limit, lease: testLease, told: make(chan protocol.Notification, 1000), came: map[engine.ID]time.Time{}}
	var err error
	u.session, err = e.Open(name, engine.Client{Host: "h", PID: os.Getpid()}, func(n protocol.Notification) { u.told <- n })
	if err == nil && !u.session.(protocol.Lasting).Lasting() {
		err = fmt.Errorf("tickets do not last")
	}
	return u, err
}

func (u *user) call(requests ...protocol.Request) (protocol.Reply, error) {
	ctx, cancel := context.WithTimeout(context.Background(), expect.Patience)
	defer cancel()
	return u.session.Step(ctx, protocol.Call{Number: u.number.Add(1), Requests: requests})
}

func (u *user) ask(wait bool) protocol.Request {
	id := engine.ID{Client: u.session.Client(), Number: u.number.Add(1), Weight: 1}
	u.came[id] = time.Now()
	return protocol.Request{
		Kind: protocol.Ask, ID: id, Limit: u.limit, Lease: u.lease, Ticket: u.lease / 6, Wait: wait,
	}
}

// acquire waits for a permit.
func (u *user) acquire() (engine.ID, error) {
	r := u.ask(true)
	for {
		reply, err := u.call(r)
		if err != nil {
			return r.ID, err
		}
		if reply.Answers[0].Status == protocol.Granted {
			return r.ID, nil
		}
		if reply.Answers[0].Status != protocol.Queued {
			return r.ID, fmt.Errorf("answered %+v", reply.Answers[0])
		}
		if err := u.await(r.ID); err != errAskAgain {
			return r.ID, err
		}
	}
}

var errAskAgain = fmt.Errorf("ask again")

// await waits for a ticket's grant.
func (u *user) await(id engine.ID) error {
	for {
		n := <-u.told
		for _, g := range n.Grants {
			if g.ID == id {
				return nil
			}
		}
		if n.Ask {
			return errAskAgain
		}
		if n.Closed {
			return engine.ErrClosed
		}
	}
}

func (u *user) release(id engine.ID) error {
	reply, err := u.call(protocol.Request{Kind: protocol.Release, ID: id})
	if err == nil && reply.Answers[0].Status != protocol.Done {
		err = fmt.Errorf("release of %s answered %+v", id, reply.Answers[0])
	}
	return err
}

func openEngine(tb testing.TB, dir string) *Engine {
	tb.Helper()
	e, err := New(dir, nil)
	expect.OK(tb, err)
	tb.Cleanup(func() { _ = e.Close() })
	return e
}

func openUser(tb testing.TB, e *Engine, name string, limit int) *user {
	tb.Helper()
	u, err := newUser(e, name, limit)
	expect.OK(tb, err)
	return u
}

// take acquires a free permit.
func (u *user) take(tb testing.TB) engine.ID {
	tb.Helper()
	r := u.ask(false)
	u.wants(tb, r, protocol.Granted)
	return r.ID
}

// queueUp makes n users in engines of their own wait, one after the other, and returns them
// with their tickets.
func queueUp(tb testing.TB, dir string, n int) (queue []*user, tickets []engine.ID) {
	tb.Helper()
	for range n {
		u := openUser(tb, openEngine(tb, dir), "x", 1)
		queue, tickets = append(queue, u), append(tickets, u.queue(tb).ID)
	}
	return queue, tickets
}

// queue asks for a permit that is not free.
func (u *user) queue(tb testing.TB) protocol.Request {
	tb.Helper()
	r := u.ask(true)
	u.wants(tb, r, protocol.Queued)
	return r
}

func (u *user) status(tb testing.TB, r protocol.Request) protocol.Status {
	tb.Helper()
	reply, err := u.call(r)
	expect.OK(tb, err)
	return reply.Answers[0].Status
}

// wants ends the test if the answer to a request has another status.
func (u *user) wants(tb testing.TB, r protocol.Request, want protocol.Status) {
	tb.Helper()
	if got := u.status(tb, r); got != want {
		tb.Fatalf("%+v: status %v, want %v", r, got, want)
	}
}

func (u *user) state(tb testing.TB) engine.State {
	tb.Helper()
	st, err := u.session.State(context.Background())
	expect.OK(tb, err)
	return st
}

// granted waits for the grant of a ticket.
func (u *user) granted(tb testing.TB, id engine.ID) {
	tb.Helper()
	deadline := time.After(expect.Patience)
	for {
		select {
		case n := <-u.told:
			for _, g := range n.Grants {
				if g.ID == id {
					return
				}
			}
			if n.Ask {
				r := u.ask(true)
				r.ID, r.Waited = id, time.Since(u.came[id])
				if u.status(tb, r) == protocol.Granted {
					return
				}
			}
		case <-deadline:
			tb.Fatalf("ticket %s was not granted; state %+v", id, u.state(tb))
		}
	}
}
