package classic

import (
	"testing"
	"time"

	"sema/internal/fixture/expect"
	"sema/internal/fixture/redistest"
)

// The book's own unit tests of chapters 6 and 11, in Go. Where the book sleeps,
// these set a clock forward. Redis counts the lease of a lock, so the tests of
// locks do wait.

func TestBookCh6CountingSemaphore(t *testing.T) {
	t.Parallel()
	clock := newHandClock()
	sem, err := NewFair(redistest.Start(t).Client(), "testsem", 3, Options{Lease: time.Second, Clock: clock.now})
	expect.OK(t, err)
	for range 3 {
		must(t, sem)
	}
	mustNot(t, sem)
	clock.forward(2 * time.Second)
	id := must(t, sem)
	release(t, sem, id, true)
	for range 3 {
		must(t, sem)
	}
}

func TestBookCh6DistributedLocking(t *testing.T) { bookLocking(t, false) }

func TestBookCh11Locking(t *testing.T) { bookLocking(t, true) }

func bookLocking(t *testing.T, lua bool) {
	t.Helper()
	t.Parallel()
	rdb := redistest.Start(t).Client()
	lock, err := NewLock(rdb, "testlock", Options{Lease: time.Minute, Wait: time.Minute, Lua: lua})
	expect.OK(t, err)
	impatient, err := NewLock(rdb, "testlock", Options{Lease: time.Minute, Wait: 10 * time.Millisecond, Lua: lua})
	expect.OK(t, err)
	id := must(t, lock)
	mustNot(t, impatient)
	// The book sleeps until the lease is over. A short lease does as well.
	expect.OK(t, rdb.PExpire(t.Context(), "lock:testlock", 20*time.Millisecond).Err())
	second := must(t, lock) // waits for the end of the lease
	release(t, lock, id, false)
	release(t, lock, second, true)
	must(t, lock)
}

func TestBookCh11Semaphore(t *testing.T) {
	t.Parallel()
	clock := newHandClock()
	rdb := redistest.Start(t).Client()
	sem, err := NewScripted(rdb, "test", 5, Options{Lease: time.Second, Clock: clock.now})
	expect.OK(t, err)
	var last string
	for range 5 {
		last = must(t, sem)
	}
	mustNot(t, sem)
	clock.forward(10 * time.Millisecond)
	// The book passes timeout=0, which ends every lease. Our shortest is 1 ns.
	purger, err := NewScripted(rdb, "test", 5, Options{Lease: time.Nanosecond, Clock: clock.now})
	expect.OK(t, err)
	id := must(t, purger)
	refresh(t, sem, last, false)
	release(t, sem, last, false)
	refresh(t, sem, id, true)
	release(t, sem, id, true)
	release(t, sem, id, false)
}
