package register_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"sema/engine"
	"sema/engine/register"
	"sema/lab/expect"
)

// slow is a hall where to begin to hear takes longer than a first waiter waits for it,
// and an answer longer still.
type slow struct{ *hall }

func (s slow) Listen(ctx context.Context, process string, heard func(string), up, down func()) {
	time.Sleep(300 * time.Millisecond)
	s.hall.Listen(ctx, process, heard, up, down)
}

func (s slow) Update(ctx context.Context, name string, f func(register.Row) (register.Next, error)) error {
	err := s.hall.Update(ctx, name, f)
	time.Sleep(200 * time.Millisecond)
	return err
}

// What happens to a ticket before its process hears is found out when it does, though the
// answer to the call that made the ticket comes later than that.
func TestHearsDuringTheFirstWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, told := newHall(), make(chan engine.Notification, 10)
		open := func(store register.Store) engine.Session {
			e, err := register.New(store, nil)
			expect.OK(t, err)
			t.Cleanup(func() { _ = e.Close() })
			s, err := e.Open("x", engine.Client{}, func(n engine.Notification) { told <- n })
			expect.OK(t, err)
			return s
		}
		ask := func(s engine.Session) engine.Status {
			reply, err := s.Step(t.Context(), engine.Call{Number: 1, Requests: []engine.Request{{
				Kind: engine.Ask, ID: engine.ID{Client: s.Client(), Number: 1, Weight: 1}, Limit: 1, Lease: time.Hour, Ticket: time.Hour, Wait: true,
			}}})
			expect.OK(t, err)
			return reply.Answers[0].Status
		}
		holder, waiter := open(h), open(slow{h})
		if got := ask(holder); got != engine.Granted {
			t.Fatal(got)
		}
		if got := ask(waiter); got != engine.Queued { // it is since 450 ms, hears since 500, and has its answer at 650
			t.Fatal(got)
		}
		select {
		case n := <-told:
			if !n.Ask {
				t.Errorf("told %+v", n)
			}
		case <-time.After(time.Hour):
			t.Error("it does not ask what became of its ticket")
		}
	})
}
