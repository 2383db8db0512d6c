package enginetest

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"testing"

	"sema"
	"sema/engine/memengine"
)

// A suite that passes everything proves nothing. Each engine here has one bug
// that a published semaphore had, and the suite must find it.
var planted = map[string]struct {
	promise string // whose test must fail
	bug     func(s *plantedSession)
}{
	// Redis in Action 6.3.1 and 6.3.2: who may enter is decided in one step and
	// written in another.
	"check, then add": {"1_Limit", func(s *plantedSession) {
		s.acquire = func(ctx context.Context, r sema.Request) (sema.Answer, error) {
			st, err := s.Session.State(ctx)
			if err != nil || st.Used+r.Weight > r.Limit {
				return sema.Answer{Status: sema.Refused, Limit: r.Limit}, err
			}
			runtime.Gosched() // the round trip between the steps
			limit := r.Limit
			r.Limit = sema.MaxLimit
			a, err := s.Session.Acquire(ctx, r)
			a.Limit = limit
			return a, err
		}
	}},
	// The permit is removed in one step and counted as free in another, which
	// may come late: nobody is woken.
	"release in two steps": {"4_NoLostWakeUp", func(s *plantedSession) {
		s.release = func(ctx context.Context, id string) (bool, error) {
			ok, err := s.Session.Revoke(ctx, id) // gone for its holder, and still counted
			return ok, err
		}
	}},
	"release adds": {"6_ExactlyOnce", func(s *plantedSession) {
		s.release = func(ctx context.Context, id string) (bool, error) {
			ok, err := s.Session.Release(ctx, id)
			if err == nil && !ok {
				st, _ := s.Session.State(ctx)
				return true, s.Session.SetLimit(ctx, st.Limit+1, false)
			}
			return ok, err
		}
	}},
	"a renewal that revives": {"6_ExactlyOnce", func(s *plantedSession) {
		s.renew = func(ctx context.Context, rs []sema.Request) ([]sema.Answer, error) {
			as, err := s.Session.Renew(ctx, rs)
			for i := range as {
				if as[i].Status == sema.Gone {
					as[i], err = s.Session.Acquire(ctx, rs[i])
				}
			}
			return as, err
		}
	}},
	// The message is the hand-off: who missed it waits for ever.
	"a push without state": {"4_NoLostWakeUp", func(s *plantedSession) {
		s.renew = func(ctx context.Context, rs []sema.Request) ([]sema.Answer, error) {
			as, err := s.Session.Renew(ctx, rs)
			for i := range as {
				if rs[i].Token == 0 {
					as[i] = sema.Answer{Status: sema.Queued, Limit: rs[i].Limit, Arrival: rs[i].Arrival}
				}
			}
			return as, err
		}
	}},
	"a counter as token": {"7_Fencing", func(s *plantedSession) {
		s.acquire = func(ctx context.Context, r sema.Request) (sema.Answer, error) {
			a, err := s.Session.Acquire(ctx, r)
			a.Token = s.store.count()
			return a, err
		}
	}},
	// A newcomer takes what is free before those who wait.
	"barging": {"3_Order", func(s *plantedSession) {
		s.acquire = func(ctx context.Context, r sema.Request) (sema.Answer, error) {
			r.Unfair = true
			return s.Session.Acquire(ctx, r)
		}
	}},
	// Cancelling forgets the ticket only locally.
	"an abandoned ticket": {"8_NothingLeaks", func(s *plantedSession) {
		s.release = func(ctx context.Context, id string) (bool, error) {
			st, err := s.Session.State(ctx)
			for _, w := range st.Waiters {
				if w.ID == id {
					return true, err
				}
			}
			return s.Session.Release(ctx, id)
		}
	}},
}

// plantedStore is a memory engine whose sessions have a bug, and which can
// forget everything.
type plantedStore struct {
	bug func(s *plantedSession)

	mu      sync.Mutex
	engine  *memengine.Engine
	counter int64
}

func (p *plantedStore) current() *memengine.Engine {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.engine
}

func (p *plantedStore) count() int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.counter++
	return p.counter
}

func (p *plantedStore) Open(name string, c sema.Client, wake func(sema.Wake)) (sema.Session, error) {
	inner, err := p.current().Open(name, c, wake)
	if err != nil {
		return nil, err
	}
	s := &plantedSession{Session: inner, store: p}
	s.acquire, s.renew, s.release = inner.Acquire, inner.Renew, inner.Release
	p.bug(s)
	return s, nil
}

func (p *plantedStore) List(ctx context.Context) ([]string, error) { return p.current().List(ctx) }
func (p *plantedStore) Close() error                               { return p.current().Close() }

type plantedSession struct {
	sema.Session
	store   *plantedStore
	acquire func(context.Context, sema.Request) (sema.Answer, error)
	renew   func(context.Context, []sema.Request) ([]sema.Answer, error)
	release func(context.Context, string) (bool, error)
}

func (s *plantedSession) Acquire(ctx context.Context, r sema.Request) (sema.Answer, error) {
	return s.acquire(ctx, r)
}

func (s *plantedSession) Renew(ctx context.Context, rs []sema.Request) ([]sema.Answer, error) {
	return s.renew(ctx, rs)
}

func (s *plantedSession) Release(ctx context.Context, id string) (bool, error) {
	return s.release(ctx, id)
}

// plantedEnv names the bug that TestWithPlantedBug runs the suite with.
const plantedEnv = "SEMA_PLANTED"

func TestSuiteFindsPlantedBugs(t *testing.T) {
	if os.Getenv(plantedEnv) != "" {
		return
	}
	run := func(t *testing.T, name, promise string) (string, error) {
		cmd := exec.Command(os.Args[0], "-test.run=^TestWithPlantedBug$/^"+promise+"$", "-test.timeout=100s")
		cmd.Env = append(os.Environ(), plantedEnv+"="+name, patienceEnv+"=4s")
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	for name, bug := range planted {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			out, err := run(t, name, bug.promise)
			var exit *exec.ExitError
			if !errors.As(err, &exit) || !strings.Contains(out, "--- FAIL: TestWithPlantedBug/"+bug.promise) {
				t.Errorf("not found: %v\n%s", err, out)
			}
		})
	}
	t.Run("none", func(t *testing.T) {
		t.Parallel()
		if out, err := run(t, "none", ".*"); err != nil || !strings.Contains(out, "PASS") {
			t.Errorf("found without a bug: %v\n%s", err, out)
		}
	})
}

func TestWithPlantedBug(t *testing.T) {
	name := os.Getenv(plantedEnv)
	if name == "" {
		return // TestSuiteFindsPlantedBugs runs this in a process of its own
	}
	bug := planted[name].bug
	if name == "none" {
		bug = func(*plantedSession) {}
	}
	Run(t, func(testing.TB) Store {
		p := &plantedStore{bug: bug, engine: memengine.New()}
		s := Store{Client: func(testing.TB) sema.Engine { return p }}
		if name == "a counter as token" {
			s.Forget = func(testing.TB) {
				p.mu.Lock()
				defer p.mu.Unlock()
				p.counter = 0
			}
		}
		return s
	})
}
