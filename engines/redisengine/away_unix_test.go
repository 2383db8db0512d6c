//go:build unix

package redisengine_test

import (
	"errors"
	"sync"
	"testing"
	"time"

	"sema"
	"sema/internal/fixture/expect"
	"sema/internal/fixture/redistest"
)

// Close of an unreachable server returns long before the lease ends, which is an hour here.
func TestCloseWithoutAServer(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	open := func(addr, name string) *sema.Semaphore {
		s, err := sema.New(engineAt(t, addr), name, 1, &sema.Options{Lease: time.Hour})
		expect.OK(t, err)
		return s
	}
	held, fresh, nowhere := open(server.Addr(), "held"), open(server.Addr(), "fresh"), open("127.0.0.1:1", "nowhere")
	acquire(t, held)
	server.Stop()
	closed := make(chan error, 3)
	var all sync.WaitGroup
	for _, s := range []*sema.Semaphore{held, fresh, nowhere} {
		all.Go(func() {
			if _, err := s.TryAcquire(expect.Within(t)); !errors.Is(err, sema.ErrEngine) {
				t.Error(err)
			}
			closed <- s.Close()
		})
	}
	within := expect.Within(t)
	for range 3 {
		select {
		case err := <-closed:
			expect.OK(t, err)
		case <-within.Done():
			t.Fatal("a Close waits for its lease")
		}
	}
	all.Wait()
}
