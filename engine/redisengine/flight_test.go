package redisengine

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"sema"
	"sema/internal/redistest"
)

// gate is a hook of the Redis client that can hold steps back before they
// leave, and tells what left.
type gate struct {
	mu   sync.Mutex
	shut chan struct{}  // nil: open
	left chan departure // has room for all that a test sends
}

// departure is some steps that left together, as their words.
type departure []string

func newGate() *gate { return &gate{left: make(chan departure, 10_000)} }

func (g *gate) close() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.shut = make(chan struct{})
}

func (g *gate) open() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.shut != nil {
		close(g.shut)
	}
	g.shut = nil
}

func (g *gate) pass(cmds []redis.Cmder) {
	var d departure
	for _, cmd := range cmds {
		if name := cmd.Name(); name != "evalsha" && name != "eval" {
			return
		}
		var words []string
		for _, arg := range cmd.Args() {
			if s, ok := arg.(*string); ok {
				arg = *s
			}
			words = append(words, fmt.Sprint(arg))
		}
		d = append(d, strings.Join(words[3:], " "))
	}
	g.left <- d
	g.mu.Lock()
	shut := g.shut
	g.mu.Unlock()
	if shut != nil {
		<-shut
	}
}

func (g *gate) DialHook(next redis.DialHook) redis.DialHook { return next }

func (g *gate) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		g.pass([]redis.Cmder{cmd})
		return next(ctx, cmd)
	}
}

func (g *gate) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		g.pass(cmds)
		return next(ctx, cmds)
	}
}

// gated is an engine behind a gate. Its client does not heed contexts, so that no
// caller sends by itself.
func gated(t *testing.T) (*Engine, *gate, *redis.Client) {
	server := redistest.Start(t)
	rdb := redis.NewClient(&redis.Options{Addr: server.Addr()})
	g := newGate()
	rdb.AddHook(g)
	e := New(rdb)
	t.Cleanup(func() {
		g.open()
		_ = e.Close()
		_ = rdb.Close()
	})
	return e, g, server.Client()
}

func openSession(t *testing.T, e *Engine, name string) *session {
	t.Helper()
	s, err := e.Open(name, sema.Client{}, func(sema.Wake) {})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s.(*session)
}

func numbered(s sema.Session, number uint64, limit int) sema.Request {
	id := sema.ID{Client: s.Client(), Number: number, Weight: 1}.String()
	return sema.Request{ID: id, Weight: 1, Limit: limit, Lease: time.Minute, Ticket: time.Minute / 2}
}

// awaitPending waits until so many operations wait behind the calls in flight.
func awaitPending(t *testing.T, s *session, n int) {
	t.Helper()
	await(t, &s.mu, fmt.Sprintf("%d operations wait", n), func() bool { return len(s.pending) == n })
}

// await asks again and again, under the lock, for what no event tells.
func await(t *testing.T, lock sync.Locker, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(time.Millisecond) {
		lock.Lock()
		done := ok()
		lock.Unlock()
		if done {
			return
		}
	}
	t.Fatalf("%s: did not happen in time", what)
}

// hold has a first step leave and holds it back.
func hold(t *testing.T, s *session, g *gate) (done chan error) {
	t.Helper()
	for len(g.left) > 0 {
		<-g.left
	}
	g.close()
	done = make(chan error, 1)
	go func() {
		_, err := s.Release(context.Background(), sema.ID{Client: s.Client(), Number: 1 << 40, Weight: 1}.String())
		done <- err
	}()
	<-g.left
	return done
}

func grantedTo(t *testing.T, s *session, r sema.Request) {
	t.Helper()
	a, err := s.Acquire(context.Background(), r)
	if err != nil || a.Status != sema.Granted {
		t.Fatalf("%+v: %+v, %v; want it granted", r, a, err)
	}
}

// What leaves together: a release goes before a first ask that came earlier,
// which therefore need not wait.
func TestAFirstAskFindsWhatIsReleasedWithIt(t *testing.T) {
	t.Parallel()
	e, g, _ := gated(t)
	s := openSession(t, e, "x")
	grantedTo(t, s, numbered(s, 1, 1))
	done := hold(t, s, g)
	asked := make(chan sema.Answer, 1)
	go func() {
		a, _ := s.Acquire(context.Background(), numbered(s, 2, 1))
		asked <- a
	}()
	awaitPending(t, s, 1)
	released := make(chan bool, 1)
	go func() {
		found, _ := s.Release(context.Background(), numbered(s, 1, 1).ID)
		released <- found
	}()
	awaitPending(t, s, 2)
	g.open()
	if a := <-asked; a.Status != sema.Granted {
		t.Errorf("asked together with the release: %+v", a)
	}
	if !<-released {
		t.Error("the release found nothing")
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// An ask that was given up before it left never leaves.
func TestAnAskGivenUpInTimeIsNotSent(t *testing.T) {
	t.Parallel()
	e, g, _ := gated(t)
	s := openSession(t, e, "x")
	done := hold(t, s, g)
	ctx, cancel := context.WithCancel(context.Background())
	result := make(chan error, 1)
	r := numbered(s, 2, 1)
	go func() {
		_, err := s.Acquire(ctx, r)
		result <- err
	}()
	awaitPending(t, s, 1)
	cancel()
	if err := <-result; !errors.Is(err, context.Canceled) {
		t.Errorf("given up: %v", err)
	}
	g.open()
	if err := <-done; err != nil {
		t.Error(err)
	}
	grantedTo(t, s, numbered(s, 3, 1)) // the only permit is free
	for len(g.left) > 0 {
		if d := <-g.left; strings.Contains(d[0], r.ID) {
			t.Errorf("sent: %s", d)
		}
	}
}

// A crowd behind a call that takes long has a second call leave.
func TestACrowdDoesNotWaitForTheCallInFlight(t *testing.T) {
	t.Parallel()
	e, g, _ := gated(t)
	s := openSession(t, e, "x")
	done := hold(t, s, g)
	results := make(chan error, crowd)
	for i := range crowd {
		if i == crowd-1 { // one less is no crowd
			awaitPending(t, s, crowd-1)
			if len(g.left) > 0 {
				t.Error("a second call left before there was a crowd")
			}
		}
		go func() {
			_, err := s.Acquire(context.Background(), numbered(s, uint64(i+2), crowd))
			results <- err
		}()
	}
	if d := <-g.left; strings.Count(d[0], s.Client()+"-") < crowd {
		t.Errorf("the second call has not all of the crowd: %s", d)
	}
	g.open()
	for range crowd {
		if err := <-results; err != nil {
			t.Error(err)
		}
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// The release of an ask that was given up in flight must come after it, crowd or
// not: else the permit would be held by nobody for a lease.
func TestAReleaseDoesNotOvertakeItsAsk(t *testing.T) {
	t.Parallel()
	e, g, rdb := gated(t)
	s := openSession(t, e, "x")
	g.close()
	ctx, cancel := context.WithCancel(context.Background())
	result := make(chan error, 1)
	r := numbered(s, 1, crowd+1)
	go func() {
		_, err := s.Acquire(ctx, r)
		result <- err
	}()
	<-g.left
	cancel()
	<-result
	var all sync.WaitGroup
	all.Go(func() { _, _ = s.Release(context.Background(), r.ID) })
	for i := range crowd {
		all.Go(func() { _, _ = s.Acquire(context.Background(), numbered(s, uint64(i+2), crowd+1)) })
	}
	awaitPending(t, s, crowd+1)
	if len(g.left) > 0 {
		t.Error("a second call left beside one that nobody waits for")
	}
	g.open()
	all.Wait()
	if n := rdb.ZCard(context.Background(), s.keys.main[1]).Val(); n != crowd {
		t.Errorf("%d permits are held, want %d: all but the one given back", n, crowd)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.forsaken != 0 || s.air != 0 {
		t.Errorf("at rest: %d calls forsaken, %d in flight", s.forsaken, s.air)
	}
}

// With more semaphores busy than there are places, steps leave together; one
// that fails fails alone.
func TestStepsOfManySemaphoresLeaveTogether(t *testing.T) {
	t.Parallel()
	const names = 100
	e, g, rdb := gated(t)
	p := e.carrier.(*post)
	foreign := keysOf("s7").state()
	if err := rdb.LPush(context.Background(), foreign, "theirs").Err(); err != nil {
		t.Fatal(err)
	}
	g.close()
	errs := make([]error, names)
	var all sync.WaitGroup
	for i := range names {
		s := openSession(t, e, fmt.Sprint("s", i))
		all.Go(func() {
			var a sema.Answer
			if a, errs[i] = s.Acquire(context.Background(), numbered(s, 1, 1)); errs[i] == nil && a.Status != sema.Granted {
				errs[i] = fmt.Errorf("answer %+v", a)
			}
		})
	}
	await(t, &p.mu, "all others wait for a place", func() bool { return len(p.letters) == names-places })
	g.open()
	all.Wait()
	for i, err := range errs {
		if (err != nil) != (i == 7) {
			t.Errorf("s%d: %v", i, err)
		}
	}
	together := 0
	for len(g.left) > 0 {
		together = max(together, len(<-g.left))
	}
	if together != names-places {
		t.Errorf("at most %d steps left together, want %d", together, names-places)
	}
	if p.out != 0 {
		t.Errorf("at rest %d places are taken", p.out)
	}
}

// Every wait has an end, even with a client that has no time limits at all.
func TestACallThatHangsIsGivenUp(t *testing.T) {
	t.Parallel()
	e, g, _ := gated(t)
	s := openSession(t, e, "x")
	done := hold(t, s, g)
	pending := make(chan error, 1)
	go func() {
		_, err := s.Acquire(context.Background(), numbered(s, 2, 1))
		pending <- err
	}()
	for _, result := range []chan error{done, pending} {
		var failed *sema.EngineError
		if err := <-result; !errors.As(err, &failed) || failed.NotExecuted || !strings.Contains(err.Error(), "no answer within") {
			t.Errorf("after a long time: %v", err)
		}
	}
	g.open()
	grantedTo(t, s, numbered(s, 3, 1)) // what was given up was not sent
}

// What ids say at their end decides what runs they may join.
func TestShape(t *testing.T) {
	for _, c := range []struct {
		weight       int
		slot, listed bool
	}{{1, false, false}, {sema.MaxLimit, false, false}, {12, true, false}, {3, false, true}, {1, true, true}} {
		id := sema.ID{Client: "psl.1", Number: 12, Slot: c.slot, Listed: c.listed, Weight: c.weight}.String()
		if weight, slot, listed := shape(id); weight != c.weight || slot != c.slot || listed != c.listed {
			t.Errorf("%s: %d, %v, %v", id, weight, slot, listed)
		}
	}
}

// A caller that sends by itself does not heed its context meanwhile; so it does
// not do so for long, also where no connection can be made.
func TestALoneCallerIsNotHeldUpByAConnection(t *testing.T) {
	t.Parallel()
	never := make(chan struct{})
	rdb := redis.NewClient(&redis.Options{
		Addr: "127.0.0.1:1", ContextTimeoutEnabled: true, DialTimeout: time.Hour, DialerRetries: 1,
		Dialer: func(ctx context.Context, _, _ string) (net.Conn, error) {
			<-never
			return nil, errors.New("never")
		},
	})
	t.Cleanup(func() { _ = rdb.Close() })
	t.Cleanup(func() { close(never) })
	e := New(rdb)
	t.Cleanup(func() { _ = e.Close() })
	s := openSession(t, e, "x")
	ctx, cancel := context.WithCancel(context.Background())
	result := make(chan error, 1)
	go func() {
		_, err := s.Acquire(ctx, numbered(s, 1, 1))
		result <- err
	}()
	cancel()
	if err := <-result; !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled without a connection: %v", err)
	}
}

// A token that was given in a run whose first permit was held already is not
// given again.
func TestTokensOfARunThatWasPartlyHeld(t *testing.T) {
	t.Parallel()
	e, _, _ := gated(t)
	s := openSession(t, e, "x")
	listed := func(number uint64, weight int) op {
		id := sema.ID{Client: s.Client(), Number: number, Listed: true, Weight: weight}.String()
		return askOp(sema.Request{ID: id, Weight: weight, Limit: 10, Lease: time.Minute, Ticket: time.Minute})
	}
	ctx := context.Background()
	if _, err := s.all(ctx, "acquire", []op{listed(1, 1)}); err != nil {
		t.Fatal(err)
	}
	answers, err := s.all(ctx, "acquire", []op{listed(1, 1), listed(2, 1), listed(3, 2), listed(4, 2)})
	if err != nil {
		t.Fatal(err)
	}
	for i := 1; i < len(answers); i++ {
		if answers[i].Token <= answers[i-1].Token {
			t.Errorf("tokens in the order of the grants: %d then %d", answers[i-1].Token, answers[i].Token)
		}
	}
}

// Somebody deleted the queue and left the tickets: who asks again is back in its
// place.
func TestAQueueDeletedByHand(t *testing.T) {
	t.Parallel()
	e, _, rdb := gated(t)
	s := openSession(t, e, "x")
	ctx := context.Background()
	grantedTo(t, s, numbered(s, 1, 1))
	ask := func(number uint64, arrival int64) sema.Answer {
		t.Helper()
		r := numbered(s, number, 1)
		r.Wait, r.Arrival = true, arrival
		list, err := s.Renew(ctx, []sema.Request{r})
		if err != nil || list[0].Status != sema.Queued {
			t.Fatalf("%+v, %v", list, err)
		}
		return list[0]
	}
	first := ask(2, 0)
	if err := rdb.Del(ctx, s.keys.main[2]).Err(); err != nil {
		t.Fatal(err)
	}
	ask(3, 0)
	if again := ask(2, first.Arrival); again.Ahead != 0 {
		t.Errorf("asked again: %+v; want its place at the head", again)
	}
}

// The caller survives a panic in a hook, as one in an HTTP handler does; so
// must the session.
func TestAHookPanics(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	rdb := redis.NewClient(&redis.Options{Addr: server.Addr(), ContextTimeoutEnabled: true})
	t.Cleanup(func() { _ = rdb.Close() })
	e := New(rdb)
	t.Cleanup(func() { _ = e.Close() })
	s := openSession(t, e, "x")
	rdb.AddHook(&panics{})
	func() {
		defer func() {
			if recover() == nil {
				t.Error("the hook did not panic")
			}
		}()
		_, _ = s.Acquire(context.Background(), numbered(s, 1, 1))
	}()
	grantedTo(t, s, numbered(s, 2, 1))
}

// panics is a hook that panics at the first step.
type panics struct{ once sync.Once }

func (p *panics) DialHook(next redis.DialHook) redis.DialHook { return next }

func (p *panics) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (p *panics) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if cmd.Name() == "evalsha" {
			p.once.Do(func() { panic("a hook's") })
		}
		return next(ctx, cmd)
	}
}

// Crowds, cancellations at every moment and many semaphores: at rest nobody
// holds anything, and nothing is in flight.
func TestNothingIsLeftOfACrowdThatGivesUp(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	rdb := redis.NewClient(&redis.Options{Addr: server.Addr(), ContextTimeoutEnabled: true})
	t.Cleanup(func() { _ = rdb.Close() })
	e := New(rdb)
	t.Cleanup(func() { _ = e.Close() })
	var all sync.WaitGroup
	var sessions []*session
	for i := range 8 {
		s := openSession(t, e, fmt.Sprint("x", i))
		sessions = append(sessions, s)
		workers := 4
		if i == 0 {
			workers = 3 * crowd
		}
		var number atomic.Uint64
		for range workers {
			all.Go(func() {
				for range 300 {
					r := numbered(s, number.Add(1), 1000)
					ctx, cancel := context.WithTimeout(context.Background(), time.Duration(rand.IntN(3000))*time.Microsecond)
					_, err := s.Acquire(ctx, r)
					cancel()
					found, releaseErr := s.Release(context.Background(), r.ID)
					if releaseErr != nil || err == nil && !found {
						t.Errorf("release of %s: %v, %v", r.ID, found, releaseErr)
					}
				}
			})
		}
	}
	all.Wait()
	for _, s := range sessions {
		await(t, &s.mu, s.name+" is at rest", func() bool { return s.air == 0 && s.forsaken == 0 && len(s.pending) == 0 })
		if held := rdb.ZRange(context.Background(), s.keys.main[1], 0, -1).Val(); len(held) > 0 {
			t.Errorf("%s: held by nobody: %v", s.name, held)
		}
	}
}
