package register

import (
	"context"
	"crypto/rand"
	"encoding/base32"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"sema/engine"
)

// Options are what an engine can be told.
type Options struct {
	// Poll is how often an engine reads a semaphore on which it waits, if it is not told of
	// what happens there: for one that is next in the queue. Default: 50 ms, at least 1 ms.
	Poll time.Duration
}

const (
	defaultPoll = 50 * time.Millisecond

	// storeTime bounds each call of a Store, and leastTime is the least that a step has.
	storeTime = 5 * time.Second
	leastTime = time.Second

	// listenIdle is for how long a process listens beyond the time when it had to.
	listenIdle = time.Second

	// closeTime is how long Close waits for what is under way.
	closeTime = 250 * time.Millisecond

	sweepEvery = time.Minute
)

// Engine is an engine.Engine over a Store. Create it with New and share it.
type Engine struct {
	store    Store
	updater  Updater  // nil: it is none
	listener Listener // nil: it is none
	poll     time.Duration
	process  string
	clock    clock
	ctx      context.Context // until Close
	cancel   context.CancelFunc
	all      sync.WaitGroup // what ends with ctx

	mu         sync.Mutex
	sessions   map[string]*session
	semaphores map[string]*semaphore
	number     uint64
	swept      time.Time
	listening  listening
	closed     bool
}

// listening is the process's connection for what others tell it. There is one while a
// semaphore of the process needs it.
type listening struct {
	runs  bool
	up    bool
	turns int // how often it came up, or went down
	since time.Time
	stop  context.CancelFunc // of the connection
}

// New makes an engine. The store stays the caller's, to be closed after it. What cannot be used is
// an *engine.ArgumentError.
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
	random := make([]byte, 5)
	_, _ = rand.Read(random) // never fails
	e := &Engine{store: store, poll: poll, sessions: map[string]*session{}, semaphores: map[string]*semaphore{}}
	e.updater, _ = store.(Updater)
	e.listener, _ = store.(Listener)
	mark := polls
	if e.listener != nil {
		mark = listens
	}
	e.process = mark + strings.ToLower(base32.StdEncoding.EncodeToString(random))
	e.ctx, e.cancel = context.WithCancel(context.Background())
	return e, nil
}

// Open implements engine.Engine.
func (e *Engine) Open(name string, who engine.Client, notify func(engine.Notification)) (engine.Session, error) {
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

// forget drops a session, and its semaphore with the last one.
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

// sessionsOf lists those of a semaphore, or all if it is nil.
func (e *Engine) sessionsOf(s *semaphore) []*session {
	e.mu.Lock()
	defer e.mu.Unlock()
	if s == nil {
		return slices.Collect(maps.Values(e.sessions))
	}
	return slices.Collect(maps.Values(s.sessions))
}

// List implements engine.Engine.
func (e *Engine) List(ctx context.Context) ([]string, error) {
	if e.ctx.Err() != nil {
		return nil, engine.ErrClosed
	}
	names, err := apart(ctx, e.store.Names)
	if err != nil {
		return nil, fail("list", "", err, true)
	}
	names = append([]string{}, names...)
	slices.Sort(names)
	return names, nil
}

// Close implements engine.Engine. The store stays open.
func (e *Engine) Close() error {
	e.mu.Lock()
	e.closed = true
	sessions := e.sessions
	e.sessions = map[string]*session{}
	e.mu.Unlock()
	e.cancel()
	for _, s := range sessions {
		s.closed.Store(true)
		s.notify(engine.Notification{Closed: true})
	}
	over := make(chan struct{})
	go func() {
		e.all.Wait()
		close(over)
	}()
	within(closeTime, over)
	return nil
}

// start runs f until the engine is closed. It reports whether it is not.
func (e *Engine) start(f func()) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return false
	}
	e.all.Go(f)
	return true
}

// hearing is whether this process is told of what others do now.
func (e *Engine) hearing() listening {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.listening
}

// listen opens the listening connection unless there is one. It stays until no semaphore has needed it for listenIdle.
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
		e.listener.Listen(ctx, e.process, e.heard, e.up, e.down)
		e.mu.Lock()
		e.listening.runs = false
		e.mu.Unlock()
		if e.needsEar() { // since it ended
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
			needed = e.needsEar()
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

// stopListening frees this process's place among the listeners at once, if no semaphore needs it.
func (e *Engine) stopListening() {
	needed := e.needsEar()
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.listening.runs && !needed {
		e.listening.stop()
	}
}

// needsEar reports whether a semaphore needs the process to be told of what others do.
func (e *Engine) needsEar() bool {
	e.mu.Lock()
	all := slices.Collect(maps.Values(e.semaphores))
	e.mu.Unlock()
	return slices.ContainsFunc(all, (*semaphore).needsEar)
}

// up takes in that this process is told from now on, and down that it is not any more.
func (e *Engine) up()   { e.turn(true) }
func (e *Engine) down() { e.turn(false) }

func (e *Engine) turn(up bool) {
	e.mu.Lock()
	e.listening.up, e.listening.since = up, time.Now()
	e.listening.turns++
	all := slices.Collect(maps.Values(e.semaphores))
	e.mu.Unlock()
	for _, s := range all {
		s.turn()
	}
}

// sweep has the store remove what is over, once in a while.
func (e *Engine) sweep() {
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
			_ = e.store.Sweep(ctx) // another time
		})
	}
}
