package register_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"sema"
	"sema/engine"
	"sema/engine/register"
	"sema/internal/fixture/expect"
)

// slow is a hall where it takes a while to begin to hear.
type slow struct{ *hall }

func (s slow) Listen(ctx context.Context, process string, heard func(string), up, down func()) {
	time.Sleep(300 * time.Millisecond)
	s.hall.Listen(ctx, process, heard, up, down)
}

// What happens to a ticket before its process hears is found out when it does.
func TestWhatHappensBeforeAProcessHears(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHall()
		open := func(store register.Store) (engine.Session, chan engine.Notification) {
			e, err := register.New(store, &register.Options{Poll: time.Hour})
			expect.OK(t, err)
			t.Cleanup(func() { _ = e.Close() })
			told := make(chan engine.Notification, 10)
			s, err := e.Open("x", engine.Client{}, func(n engine.Notification) { told <- n })
			expect.OK(t, err)
			return s, told
		}
		number := uint64(0)
		do := func(s engine.Session, kind engine.Kind, want engine.Status) {
			t.Helper()
			number++
			reply, err := s.Step(t.Context(), engine.Call{Number: number, Requests: []engine.Request{{
				Kind: kind, ID: engine.ID{Client: s.Client(), Number: 1, Weight: 1}, Limit: 1, Lease: time.Hour, Ticket: time.Hour, Wait: true,
			}}})
			expect.OK(t, err)
			if got := reply.Answers[0].Status; got != want {
				t.Fatal(got)
			}
		}
		holder, _ := open(h)
		waiter, told := open(slow{h})
		do(holder, engine.Ask, engine.Granted)
		do(waiter, engine.Ask, engine.Queued)
		time.Sleep(100 * time.Millisecond)
		do(holder, engine.Release, engine.Done) // the waiter hears since 200 ms later
		select {
		case n := <-told:
			if len(n.Grants) != 1 {
				t.Errorf("told %+v", n)
			}
		case <-time.After(30 * time.Minute):
			t.Error("it does not look what became of its ticket")
		}
	})
}

// A process that the store takes for gone, and that does not know it, learns that from the row, and is told again.
func TestAnEarThatWentDeafUnnoticed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHall()
		open := func() *sema.Semaphore {
			e, err := register.New(h, &register.Options{Poll: time.Hour})
			expect.OK(t, err)
			t.Cleanup(func() { _ = e.Close() })
			s, err := sema.New(e, "x", 1, &sema.Options{Lease: time.Minute})
			expect.OK(t, err)
			t.Cleanup(func() { _ = s.Close() })
			return s
		}
		held, err := open().Acquire(t.Context())
		expect.OK(t, err)
		got := make(chan time.Time, 1)
		waiter := open()
		go func() {
			_, err := waiter.Acquire(t.Context())
			if err != nil {
				t.Error(err)
			}
			got <- time.Now()
		}()
		time.Sleep(time.Second)
		h.mu.Lock()
		clear(h.ears)
		h.mu.Unlock()
		time.Sleep(time.Minute / 3) // it asks again meanwhile
		released := time.Now()
		expect.OK(t, held.Release())
		if waited := (<-got).Sub(released); waited > 0 {
			t.Errorf("it was told after %v", waited)
		}
	})
}

// However many processes wait, those listen that are served next, and all are served in order.
func TestOnlyTheFirstListen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const processes, listeners = 30, 8
		h := newHall()
		listen := func() int {
			h.mu.Lock()
			defer h.mu.Unlock()
			return len(h.ears)
		}
		first, served := crowd(t, h, processes)
		time.Sleep(10 * time.Second)
		if n := listen(); n != listeners {
			t.Errorf("%d processes listen", n)
		}
		expect.OK(t, first.Release())
		for want := range processes {
			if got := <-served; got != want {
				t.Errorf("%d was served in place of %d", got, want)
			}
			time.Sleep(5 * time.Second)
			if n := listen(); n > listeners {
				t.Errorf("%d processes listen", n)
			}
		}
		time.Sleep(5 * time.Second)
		if n := listen(); n > 0 {
			t.Errorf("%d processes listen, and nobody waits", n)
		}
	})
}

// A process that was served, beside many that wait, makes room for the next one that is to be told.
func TestThoseWhoWereServedListenNoMore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const processes, listeners = 60, 8
		h := newHall()
		first, served := crowd(t, distant{h}, processes)
		time.Sleep(time.Minute)
		began := time.Now()
		expect.OK(t, first.Release())
		for want := range processes {
			if got := <-served; got != want {
				t.Errorf("%d was served in place of %d", got, want)
			}
		}
		h.mu.Lock()
		most := h.most
		h.mu.Unlock()
		if most > listeners+1 { // one has been served and has not given back
			t.Errorf("%d processes listened at once", most)
		}
		// The first of those who do not listen may have looked just before.
		if took := time.Since(began); took > 10*time.Second {
			t.Errorf("all were served after %v", took)
		}
		time.Sleep(time.Second) // for the last one to give back
	})
}

// crowd has so many processes wait, one after the other, for a permit, which each gives back at once. It returns that
// permit, and a channel with those that are served.
func crowd(t *testing.T, store register.Store, processes int) (*sema.Permit, chan int) {
	t.Helper()
	open := func() *sema.Semaphore {
		e, err := register.New(store, nil)
		expect.OK(t, err)
		t.Cleanup(func() { _ = e.Close() })
		s, err := sema.New(e, "x", 1, &sema.Options{Lease: time.Hour})
		expect.OK(t, err)
		return s
	}
	first, err := open().Acquire(t.Context())
	expect.OK(t, err)
	served := make(chan int)
	for i := range processes {
		s := open()
		go func() {
			p, err := s.Acquire(t.Context())
			if err == nil {
				served <- i
				err = p.Release()
			}
			if err != nil {
				t.Error(err)
			}
		}()
		time.Sleep(50 * time.Millisecond) // so that they come in order
	}
	return first, served
}
