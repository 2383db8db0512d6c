package enginetest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"sema"
	"sema/engine"
	"sema/engines/memengine"
	"sema/internal/protocol"
)

// A suite that passes everything proves nothing. Each engine here has one bug
// that a published semaphore had, and the suite must find it.
var planted = map[string]struct {
	promise string // whose test must fail
	bug     func(s *plantedSession, ctx context.Context, c protocol.Call) (protocol.Reply, error)
}{
	// Redis in Action 6.3.1 and 6.3.2: who may enter is decided in one step and
	// written in another.
	"check, then add": {"1_Limit", func(s *plantedSession, ctx context.Context, c protocol.Call) (protocol.Reply, error) {
		st, err := s.Session.State(ctx)
		if err != nil {
			return protocol.Reply{}, err
		}
		runtime.Gosched() // the round trip between the steps
		for i := range c.Requests {
			if r := &c.Requests[i]; r.Kind == protocol.Ask && st.Used+r.ID.Weight <= r.Limit {
				_, err = step(ctx, s.Session, protocol.Request{Kind: protocol.SetLimit, Limit: engine.MaxLimit})
			}
		}
		c.Number = numbers.Add(1)
		reply, err2 := s.Session.Step(ctx, c)
		_, err3 := step(ctx, s.Session, protocol.Request{Kind: protocol.SetLimit, Limit: max(1, st.Limit)})
		return reply, errors.Join(err, err2, err3)
	}},
	// The permit is removed in one step and counted as free in another, which
	// may come late: nobody is woken.
	"release in two steps": {"4_NoLostWakeUp", replaced(protocol.Release, func(s *plantedSession, r *protocol.Request) {
		r.Kind = protocol.Revoke // gone for its holder, and still counted
	})},
	"release adds": {"6_ExactlyOnce", func(s *plantedSession, ctx context.Context, c protocol.Call) (protocol.Reply, error) {
		reply, err := s.Session.Step(ctx, c)
		for i := range reply.Answers {
			if c.Requests[i].Kind == protocol.Release && reply.Answers[i].Status == protocol.Gone {
				reply.Answers[i].Status = protocol.Done
				_, err = step(ctx, s.Session, protocol.Request{Kind: protocol.SetLimit, Limit: reply.Limit + 1})
			}
		}
		return reply, err
	}},
	"a renewal that revives": {"6_ExactlyOnce", func(s *plantedSession, ctx context.Context, c protocol.Call) (protocol.Reply, error) {
		reply, err := s.Session.Step(ctx, c)
		for i := range reply.Answers {
			if r := c.Requests[i]; r.Kind == protocol.Renew && reply.Answers[i].Status == protocol.Gone {
				r.Kind, r.Limit = protocol.Ask, 1
				reply.Answers[i], err = step(ctx, s.Session, r)
			}
		}
		return reply, err
	}},
	// The message is the hand-off: who missed it waits for ever.
	"a push without state": {"4_NoLostWakeUp", func(s *plantedSession, ctx context.Context, c protocol.Call) (protocol.Reply, error) {
		reply, err := s.Session.Step(ctx, c)
		for i := range reply.Answers {
			if r := c.Requests[i]; r.Kind == protocol.Ask && s.asked[r.ID] && reply.Answers[i].Status == protocol.Granted {
				reply.Answers[i] = protocol.Answer{Status: protocol.Queued}
			}
			s.asked[c.Requests[i].ID] = true
		}
		return reply, err
	}},
	"a counter as token": {"7_Fencing", func(s *plantedSession, ctx context.Context, c protocol.Call) (protocol.Reply, error) {
		reply, err := s.Session.Step(ctx, c)
		for i := range reply.Answers {
			if c.Requests[i].Kind == protocol.Ask {
				reply.Answers[i].Token = s.store.count()
			}
		}
		return reply, err
	}},
	// What is given up is encoded later, from memory that its caller uses anew.
	"a step that reads on": {"2_LossIsKnownFirst", func(s *plantedSession, ctx context.Context, c protocol.Call) (protocol.Reply, error) {
		thawed := s.store.frozen.Load()
		if thawed == nil {
			s.store.late.Wait() // they come first
			return s.Session.Step(ctx, c)
		}
		s.store.late.Go(func() {
			<-*thawed
			_, _ = s.Session.Step(context.Background(), c)
		})
		<-ctx.Done()
		return protocol.Reply{}, &engine.Error{Op: "step", Err: ctx.Err()}
	}},
	// A newcomer takes what is free before those who wait.
	"barging": {"3_Order", replaced(protocol.Ask, func(s *plantedSession, r *protocol.Request) { r.Unfair = true })},
	// Cancelling forgets the ticket only locally.
	"an abandoned ticket": {"8_NothingLeaks", replaced(protocol.Release, func(s *plantedSession, r *protocol.Request) {
		st, _ := s.Session.State(context.Background())
		for _, w := range st.Waiters {
			if w.ID == r.ID.String() {
				r.ID.Number = 0
			}
		}
	})},
	// The server that asked first still gets the notifications, though the
	// caller has gone to another one.
	"a name stays with the first to ask": {"12_NamesAreForAll", replaced(protocol.Ask, func(_ *plantedSession, r *protocol.Request) { r.Again = true })},
	// A server that gives up a caller gives back what another server holds for it.
	"given back for another": {"12_NamesAreForAll", replaced(protocol.Release, func(_ *plantedSession, r *protocol.Request) { r.Mine = false })},
	// A release that is repeated gives back what its caller has asked for since.
	"given back by name alone": {"12_NamesAreForAll", replaced(protocol.Release, func(_ *plantedSession, r *protocol.Request) { r.Token = 0 })},
	// The ticket has no name, and so the permit that it becomes has none.
	"a hand-off that loses the name": {"12_NamesAreForAll", replaced(protocol.Ask, func(s *plantedSession, r *protocol.Request) {
		if st, _ := s.Session.State(context.Background()); st.Used+r.ID.Weight > st.Limit {
			r.Who = nil
		}
	})},
}

// replaced is a bug that changes each request of a kind.
func replaced(kind protocol.Kind, change func(*plantedSession, *protocol.Request)) func(*plantedSession, context.Context, protocol.Call) (protocol.Reply, error) {
	return func(s *plantedSession, ctx context.Context, c protocol.Call) (protocol.Reply, error) {
		for i := range c.Requests {
			if c.Requests[i].Kind == kind {
				change(s, &c.Requests[i])
			}
		}
		return s.Session.Step(ctx, c)
	}
}

// plantedStore is a memory engine whose sessions have a bug, and which can
// forget everything.
type plantedStore struct {
	bug func(s *plantedSession, ctx context.Context, c protocol.Call) (protocol.Reply, error)

	frozen  atomic.Pointer[chan struct{}] // closed when the store is thawed
	late    sync.WaitGroup                // steps that go on then
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

func (p *plantedStore) Open(name string, who engine.Client, notify func(protocol.Notification)) (protocol.Session, error) {
	inner, err := p.current().Open(name, who, notify)
	if err != nil {
		return nil, err
	}
	return &plantedSession{Session: inner, store: p, asked: map[engine.ID]bool{}}, nil
}

func (p *plantedStore) List(ctx context.Context) ([]string, error) { return p.current().List(ctx) }
func (p *plantedStore) Close() error                               { return p.current().Close() }

type plantedSession struct {
	protocol.Session
	store *plantedStore
	asked map[engine.ID]bool
}

func (s *plantedSession) Step(ctx context.Context, c protocol.Call) (protocol.Reply, error) {
	if s.store.bug == nil {
		return s.Session.Step(ctx, c)
	}
	c.Number = numbers.Add(1) // some make steps of their own
	return s.store.bug(s, ctx, c)
}

// plantedEnv names the bug that TestWithPlantedBug runs the suite with.
const plantedEnv = "SEMA_PLANTED"

func TestSuiteFindsPlantedBugs(t *testing.T) {
	if os.Getenv(plantedEnv) != "" {
		return
	}
	run := func(t *testing.T, name, promise string) (string, error) {
		cmd := exec.Command(os.Args[0], "-test.run=^TestWithPlantedBug$/^"+promise+"$", "-test.timeout=100s")
		cmd.Env = append(os.Environ(), plantedEnv+"="+name)
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
	bug := planted[name].bug // nil for "none"
	Run(t, func(testing.TB) Store {
		p := &plantedStore{bug: bug, engine: memengine.New()}
		s := Store{Client: func(testing.TB) sema.Engine { return p }, Virtual: true}
		if name == "a counter as token" {
			s.Forget = func(testing.TB) {
				p.mu.Lock()
				defer p.mu.Unlock()
				p.counter = 0
			}
		}
		if name == "a step that reads on" {
			s.Freeze = func() { thawed := make(chan struct{}); p.frozen.Store(&thawed) }
			s.Thaw = func() { close(*p.frozen.Swap(nil)) }
		}
		return s
	})
}

// The suite finds an error that a program could mistake.
func TestAnErrorIsOfOneClass(t *testing.T) {
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	away := &engine.Error{Op: "acquire", Name: "x", Err: fmt.Errorf("read: %w", context.DeadlineExceeded)}
	for _, test := range []struct {
		ctx   context.Context
		err   error
		wrong bool
	}{
		{t.Context(), sema.ErrBusy, false},
		{t.Context(), away, false},
		{t.Context(), sema.ErrRevoked, false},
		{t.Context(), fmt.Errorf("%w: too many", sema.ErrBusy), false},
		{t.Context(), &sema.WeightError{}, false},
		{ended, fmt.Errorf("%w: %w", sema.ErrBusy, context.Canceled), false},
		{ended, fmt.Errorf("%w: %w", away, context.Canceled), false},

		{t.Context(), errors.New("another"), true},
		{t.Context(), fmt.Errorf("%w: %w", sema.ErrBusy, away), true},
		{t.Context(), fmt.Errorf("%w: %w", sema.ErrLost, sema.ErrClosed), true},
		{t.Context(), fmt.Errorf("%w: %w", sema.ErrBusy, &sema.WeightError{}), true},
		{t.Context(), fmt.Errorf("%w: %w", sema.ErrBusy, context.Canceled), true},
		{ended, fmt.Errorf("%w: %w", sema.ErrBusy, context.DeadlineExceeded), true},
		{ended, fmt.Errorf("%w: %w", sema.ErrLost, context.Canceled), true},
		{ended, context.Canceled, true},
		{t.Context(), errors.Join(sema.ErrLost, errors.New("work failed")), true},
		{t.Context(), fmt.Errorf("%w: it stopped..", sema.ErrLost), true},
	} {
		if wrong := mistakable(test.ctx, test.err); (wrong != "") != test.wrong {
			t.Errorf("%q: %q, want a fault: %v", test.err, wrong, test.wrong)
		}
	}
}
