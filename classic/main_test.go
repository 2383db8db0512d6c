package classic

import (
	"flag"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"sema/internal/fixture/expect"
	"sema/internal/fixture/redistest"
)

var update = flag.Bool("update", false, "write what this run measures to testdata and docs/data/classic.md")

// Tests wait for servers more than they compute.
func TestMain(m *testing.M) {
	flag.Parse()
	if testing.Short() {
		fmt.Println("all of it needs a server")
		return
	}
	_ = flag.Set("test.parallel", "8")
	goleak.VerifyTestMain(redistest.Settled(m))
}

// variant is a type of this package, in one of its forms.
type variant struct {
	name    string
	limit   int  // 1 for locks, else 0: any
	clock   bool // leases end by the callers' clocks
	refresh bool
	make    func(rdb redis.UniversalClient, name string, limit int, o Options) (Semaphore, error)
}

// variants are all types in all forms.
var variants = []variant{
	{"Lock", 1, false, false, func(rdb redis.UniversalClient, name string, _ int, o Options) (Semaphore, error) {
		return NewLock(rdb, name, o)
	}},
	{"Lock Lua", 1, false, false, func(rdb redis.UniversalClient, name string, _ int, o Options) (Semaphore, error) {
		o.Lua = true
		return NewLock(rdb, name, o)
	}},
	{"Basic", 0, true, false, func(rdb redis.UniversalClient, name string, limit int, o Options) (Semaphore, error) {
		return NewBasic(rdb, name, limit, o)
	}},
	{"Fair", 0, true, true, func(rdb redis.UniversalClient, name string, limit int, o Options) (Semaphore, error) {
		return NewFair(rdb, name, limit, o)
	}},
	{"Locked", 0, true, true, func(rdb redis.UniversalClient, name string, limit int, o Options) (Semaphore, error) {
		return NewLocked(rdb, name, limit, o)
	}},
	{"Scripted", 0, true, true, func(rdb redis.UniversalClient, name string, limit int, o Options) (Semaphore, error) {
		return NewScripted(rdb, name, limit, o)
	}},
	{"Clockless", 0, false, true, func(rdb redis.UniversalClient, name string, limit int, o Options) (Semaphore, error) {
		return NewClockless(rdb, name, limit, o)
	}},
	{"Clockless Lua", 0, false, true, func(rdb redis.UniversalClient, name string, limit int, o Options) (Semaphore, error) {
		o.Lua = true
		return NewClockless(rdb, name, limit, o)
	}},
}

// exact tells whether the variant keeps to the limit in whatever order the
// requests of several callers arrive.
func (v variant) exact() bool {
	switch v.name {
	case "Basic", "Fair", "Clockless":
		return false
	}
	return true
}

// new makes the semaphore "sem" or ends the test.
func (v variant) new(t *testing.T, rdb redis.UniversalClient, limit int, o Options) Semaphore {
	t.Helper()
	if o.Wait == 0 && v.limit == 1 {
		o.Wait = 1 // one try, or each refusal would take the book's 10 s
	}
	s, err := v.make(rdb, "sem", limit, o)
	expect.OK(t, err)
	return s
}

// must acquires a permit and ends the test when there is none.
func must(t *testing.T, s Semaphore) string {
	t.Helper()
	id, ok, err := s.Acquire(t.Context())
	if err != nil || !ok {
		t.Fatalf("%T.Acquire = %q, %v, %v; want a permit", s, id, ok, err)
	}
	return id
}

// mustNot tries to acquire and fails the test when that works.
func mustNot(t *testing.T, s Semaphore) {
	t.Helper()
	id, ok, err := s.Acquire(t.Context())
	if err != nil || ok || id != "" {
		t.Errorf("%T.Acquire = %q, %v, %v; want a refusal", s, id, ok, err)
	}
}

// release gives a permit back and compares what Release reports.
func release(t *testing.T, s Semaphore, id string, want bool) {
	t.Helper()
	if got, err := s.Release(t.Context(), id); err != nil || got != want {
		t.Errorf("%T.Release = %v, %v; want %v", s, got, err, want)
	}
}

// refresh refreshes a permit and compares what Refresh reports.
func refresh(t *testing.T, s Semaphore, id string, want bool) {
	t.Helper()
	if got, err := s.(Refresher).Refresh(t.Context(), id); err != nil || got != want {
		t.Errorf("%T.Refresh = %v, %v; want %v", s, got, err, want)
	}
}

// handClock is a clock that stands still until it is moved.
type handClock struct{ t time.Time }

func newHandClock() *handClock {
	return &handClock{time.Date(2026, 1, 2, 3, 4, 5, 678901234, time.UTC)}
}

func (c *handClock) now() time.Time          { return c.t }
func (c *handClock) forward(d time.Duration) { c.t = c.t.Add(d) }

// ahead is the clock of a client whose time is d ahead of c.
func (c *handClock) ahead(d time.Duration) func() time.Time {
	return func() time.Time { return c.t.Add(d) }
}

// interrupted is a client that runs f once, before its first request with the
// command: with it a test puts another caller exactly between two requests of one operation.
func interrupted(srv *redistest.Server, command string, f func()) *redis.Client {
	rdb := srv.Client()
	done := false
	rdb.AddHook(redistest.Around(func(commands ...string) func(error) {
		if slices.Contains(commands, command) && !done {
			done = true
			f()
		}
		return nil
	}))
	return rdb
}
