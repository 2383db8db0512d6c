package register

import (
	"context"
	"crypto/rand"
	"maps"
	"math/big"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"sema/engine"
	"sema/internal/protocol"
)

// Options configure an engine.
type Options struct {
	// Poll is the time between two reads of a semaphore's row while a process waits
	// first in the queue and is not listening. Default 50 ms, range 1 ms … 1 h.
	Poll time.Duration
}

const (
	defaultPoll = 50 * time.Millisecond

	// storeTime is the longest time for a call of a Store and for a step, and leastTime
	// the shortest time limit of a step.
	storeTime = 5 * time.Second
	leastTime = time.Second

	// listenIdle is how often the engine checks whether it still needs to listen.
	listenIdle = time.Second

	// closeTime is how long Close waits for running work.
	closeTime = 250 * time.Millisecond

	// A Sweep looks at all rows of the store. So it follows only one in sweepChance new rows, and
	// sweepEvery at the most.
	sweepChance = 64
	sweepEvery  = time.Minute
)

// Engine is a sema.Engine over a Store. Create it with New and share it.
type Engine struct {
	store    Store
	updater  Updater  // nil: the store is no Updater
	listener Listener // nil: the store is no Listener
	poll     time.Duration
	process  string
	clock    clock
	ctx      context.Context // until Close
	cancel   context.CancelFunc
	all      sync.WaitGroup // goroutines that end with ctx

	mu         sync.Mutex
	sessions   map[string]*session
	semaphores map[string]*semaphore
	number     uint64
	swept      time.Time
	listening  listenerState
	closed     bool
}

// listenerState is the state of the connection that receives messages of other
// processes. It exists while a semaphore of the process needs it.
type listenerState struct {
	runs    bool
	up      bool
	changes int                // how often up changed
	since   time.Time          // the last change of up
	stop    context.CancelFunc // closes the connection
}

// New makes an engine. The caller closes the store after the engine. A nil store or an
// option out of range is an *engine.ArgumentError.
func New(store Store, o *Options) (*Engine, error) {
	if store == nil {
		return nil, &engine.ArgumentError{What: "store", Value: nil, Want: "a store"}
	}
	poll := defaultPoll
	if o != nil && o.Poll != 0 {
		poll = o.Poll
	}
	if err := engine.ValidateRange("", "poll", poll, time.Millisecond, time.Hour); err != nil {
		return nil, err
	}
	e := &Engine{store: store, poll: poll, sessions: map[string]*session{}, semaphores: map[string]*semaphore{}}
	e.updater, _ = store.(Updater)
	e.listener, _ = store.(Listener)
	prefix := pollPrefix
	if e.listener != nil {
		prefix = listenPrefix
	}
	e.process = prefix + strings.ToLower(rand.Text()[:8])
	e.ctx, e.cancel = context.WithCancel(context.Background())
	return e, nil
}

// Open implements sema.Engine.
func (e *Engine) Open(name string, who engine.Client, notify func(protocol.Notification)) (protocol.Session, error) {
	if err := engine.ValidateName(name); err != nil {
		return nil, err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return nil, engine.ErrClosed
	}
	e.number++
	s := &session{
		engine: e, id: e.process + "." + strconv.FormatUint(e.number, 36), who: who, notify: notify,
		known: map[engine.ID]fact{},
	}
	s.semaphore = e.semaphores[name]
	if s.semaphore == nil {
		s.semaphore = &semaphore{engine: e, name: name, sessions: map[string]*session{}}
		e.semaphores[name] = s.semaphore
	}
	s.semaphore.sessions[s.id], e.sessions[s.id] = s, s
	return s, nil
}

// forget removes a session, and its semaphore with the last session.
func (e *Engine) forget(s *session) {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.sessions, s.id)
	delete(s.semaphore.sessions, s.id)
	if len(s.semaphore.sessions) == 0 && e.semaphores[s.semaphore.name] == s.semaphore {
		delete(e.semaphores, s.semaphore.name)
	}
}

func (e *Engine) session(id string) *session {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.sessions[id]
}

func (e *Engine) sessionsOf(s *semaphore) []*session {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Collect(maps.Values(s.sessions))
}

// List implements sema.Engine.
func (e *Engine) List(ctx context.Context) ([]string, error) {
	if e.ctx.Err() != nil {
		return nil, engine.ErrClosed
	}
	names, err := readDetached(ctx, e.store.Names)
	if err != nil {
		return nil, fail("list", "", err, true)
	}
	names = append([]string{}, names...)
	slices.Sort(names)
	return names, nil
}

// Close implements sema.Engine. The store stays open.
func (e *Engine) Close() error {
	e.mu.Lock()
	e.closed = true
	sessions := e.sessions
	e.sessions = map[string]*session{}
	e.mu.Unlock()
	e.cancel()
	for _, s := range sessions {
		s.closed.Store(true)
		s.notify(protocol.Notification{Closed: true})
	}
	over := make(chan struct{})
	go func() {
		e.all.Wait()
		close(over)
	}()
	waitFor(closeTime, over)
	return nil
}

// randomBelow returns a random number below n. A test can determine what crypto/rand returns.
func randomBelow(n int64) int64 {
	r, _ := rand.Int(rand.Reader, big.NewInt(n)) // never fails
	return r.Int64()
}

// start runs f in a goroutine that Close waits for. A closed engine does not run it.
func (e *Engine) start(f func()) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.closed {
		e.all.Go(f)
	}
}

func (e *Engine) listenerState() listenerState {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.listening
}

// listen opens the listening connection unless there is one. The connection is closed
// at most listenIdle after no semaphore needs it any more.
func (e *Engine) listen() {
	e.mu.Lock()
	begins := e.listener != nil && !e.listening.runs && !e.closed
	if !begins {
		e.mu.Unlock()
		return
	}
	ctx, cancel := context.WithCancel(e.ctx)
	e.listening.runs, e.listening.stop = true, cancel
	e.mu.Unlock()
	e.start(func() {
		e.listener.Listen(ctx, e.process, e.receive, func() { e.setListening(true) }, func() { e.setListening(false) })
		e.mu.Lock()
		e.listening.runs = false
		e.mu.Unlock()
		if e.needsListener() { // a semaphore began to need it while it ended
			e.listen()
		}
	})
	e.start(func() {
		defer cancel()
		tick := time.NewTicker(listenIdle)
		defer tick.Stop()
		for needed := true; needed; {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			needed = e.needsListener()
		}
	})
}

// reconnect replaces the listening connection if the store has dropped it since before.
func (e *Engine) reconnect(before time.Time) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.listening.up && e.listening.since.Before(before) {
		e.listening.stop()
	}
}

// stopListening frees this process's place among the listeners at once if no semaphore needs it.
func (e *Engine) stopListening() {
	needed := e.needsListener()
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.listening.runs && !needed {
		e.listening.stop()
	}
}

// needsListener reports whether a semaphore needs the messages of other processes.
func (e *Engine) needsListener() bool {
	e.mu.Lock()
	all := slices.Collect(maps.Values(e.semaphores))
	e.mu.Unlock()
	return slices.ContainsFunc(all, (*semaphore).needsListener)
}

// setListening records that the listening connection was made or lost.
func (e *Engine) setListening(up bool) {
	e.mu.Lock()
	e.listening.up, e.listening.since = up, time.Now()
	e.listening.changes++
	all := slices.Collect(maps.Values(e.semaphores))
	e.mu.Unlock()
	for _, s := range all {
		s.lookAgain()
	}
}

// sweep starts a Sweep of the store now and then, after a new row.
func (e *Engine) sweep() {
	if randomBelow(sweepChance) > 0 {
		return
	}
	e.mu.Lock()
	due := time.Since(e.swept) > sweepEvery
	if due {
		e.swept = time.Now()
	}
	e.mu.Unlock()
	if due {
		e.start(func() {
			ctx, cancel := context.WithTimeout(e.ctx, storeTime)
			defer cancel()
			_ = e.store.Sweep(ctx) // after a failure the next sweep removes the rows
		})
	}
}
