package register_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"sema"
	"sema/engine"
	"sema/engines/register"
	"sema/internal/fixture/expect"
	"sema/internal/protocol"
)

// slowListener is a lockingStore in which Listen takes 300 ms to begin.
type slowListener struct{ *lockingStore }

func (s slowListener) Listen(ctx context.Context, process string, receive func(string), up, down func()) {
	time.Sleep(300 * time.Millisecond)
	s.lockingStore.Listen(ctx, process, receive, up, down)
}

// A process that begins to listen finds the grants that it missed.
func TestGrantsBeforeAProcessListens(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newLockingStore()
		open := func(store register.Store) (protocol.Session, chan protocol.Notification) {
			e := engineOn(t, store, &register.Options{Poll: time.Hour})
			told := make(chan protocol.Notification, 10)
			s, err := e.Open("x", engine.Client{}, func(n protocol.Notification) { told <- n })
			expect.OK(t, err)
			return s, told
		}
		number := uint64(0)
		do := func(s protocol.Session, kind protocol.Kind, want protocol.Status) {
			t.Helper()
			number++
			reply, err := s.Step(t.Context(), protocol.Call{Number: number, Requests: []protocol.Request{{
				Kind: kind, ID: engine.ID{Client: s.Client(), Number: 1, Weight: 1}, Limit: 1, Lease: time.Hour, Ticket: time.Hour, Wait: true,
			}}})
			expect.OK(t, err)
			if got := reply.Answers[0].Status; got != want {
				t.Fatal(got)
			}
		}
		holder, _ := open(h)
		waiter, told := open(slowListener{h})
		do(holder, protocol.Ask, protocol.Granted)
		do(waiter, protocol.Ask, protocol.Queued)
		time.Sleep(100 * time.Millisecond)
		do(holder, protocol.Release, protocol.Done) // the waiter listens only 200 ms later
		select {
		case n := <-told:
			if len(n.Grants) != 1 {
				t.Errorf("told %+v", n)
			}
		case <-time.After(30 * time.Minute):
			t.Error("the waiter did not find its grant")
		}
	})
}

// A process whose listening connection the store has dropped unnoticed learns that from
// the row, and listens again.
func TestAListenerThatWasDroppedUnnoticed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newLockingStore()
		open := func() *sema.Semaphore {
			return semaphoreOn(t, engineOn(t, h, &register.Options{Poll: time.Hour}), &sema.Options{Lease: time.Minute})
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
		clear(h.listeners)
		h.mu.Unlock()
		time.Sleep(time.Minute / 3) // meanwhile the waiter asks again
		released := time.Now()
		expect.OK(t, held.Release())
		if waited := (<-got).Sub(released); waited > 0 {
			t.Errorf("the waiter was notified after %v", waited)
		}
	})
}

// Only the first eight of many waiting processes listen, and all are served in order.
func TestOnlyTheFirstListen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const processes, listeners = 30, 8
		h := newLockingStore()
		listen := func() int {
			h.mu.Lock()
			defer h.mu.Unlock()
			return len(h.listeners)
		}
		first, served := startQueue(t, h, processes)
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
			t.Errorf("%d processes listen after the last was served", n)
		}
	})
}

// A served process stops listening at once, so that the next waiting one can listen.
func TestServedProcessesStopListening(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const processes, listeners = 60, 8
		h := newLockingStore()
		first, served := startQueue(t, distantStore{h}, processes)
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
		if most > listeners+1 { // the process that was served last may still hold the permit
			t.Errorf("%d processes listened at once", most)
		}
		// The first process that does not listen may have polled just before its grant.
		if took := time.Since(began); took > 10*time.Second {
			t.Errorf("all were served after %v", took)
		}
		time.Sleep(time.Second) // the last process releases the permit
	})
}

// startQueue acquires a permit and starts processes that wait for it, in order. Each
// releases it at once. It returns the permit and a channel of the processes served.
func startQueue(t *testing.T, store register.Store, processes int) (*sema.Permit, chan int) {
	t.Helper()
	open := func() *sema.Semaphore {
		return semaphoreOn(t, engineOn(t, store, nil), &sema.Options{Lease: time.Hour})
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
