package redisengine

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	// places is how many connections the steps of all semaphores use at once.
	places = 4
	// maxLetters bounds what goes over one of them at once.
	maxLetters = 250
)

// carrier brings commands to the server. A command takes no longer than most
// once it has a place, where the client heeds contexts; its result is then in
// cmd.
type carrier interface {
	// process carries out one command when there is a place for it.
	process(cmd redis.Cmder, most time.Duration)
	// take takes a place for one direct, if there is one now, and if that would
	// end in time.
	take() bool
	direct(cmd redis.Cmder, most time.Duration)
}

// carry chooses the carrier. In a cluster each step goes by itself, lest a node
// that hangs hold up those for others.
func carry(rdb redis.UniversalClient) carrier {
	switch c := rdb.(type) {
	case *redis.ClusterClient:
		return &pool{rdb: rdb, heeds: c.Options().ContextTimeoutEnabled}
	case *redis.Client:
		return &post{pool: pool{rdb: rdb, heeds: c.Options().ContextTimeoutEnabled}}
	}
	return &post{pool: pool{rdb: rdb}}
}

// pool carries each command by itself.
type pool struct {
	rdb    redis.UniversalClient
	heeds  bool // ends a call on the wire when its context's time is up
	limits limits
}

func (p *pool) process(cmd redis.Cmder, most time.Duration) {
	_ = p.rdb.Process(p.limits.within(most), cmd) // cmd has the error
}

func (p *pool) take() bool { return p.heeds }

func (p *pool) direct(cmd redis.Cmder, most time.Duration) { p.process(cmd, most) }

// limits makes the contexts of calls. A timer for each would have the runtime
// wake a thread each time, so calls of the same length share one: the deadline is
// exact, and the client has it on the wire; Done comes up to half as much later,
// and bounds its waits for a connection.
type limits struct {
	mu     sync.Mutex
	shared map[time.Duration]limit
}

type limit struct {
	context.Context
	cancel   context.CancelFunc // for the one that ends by itself: never called
	end      time.Time
	deadline time.Time // of a call
}

func (l limit) Deadline() (time.Time, bool) { return l.deadline, true }

func (l *limits) within(most time.Duration) context.Context {
	now := time.Now()
	l.mu.Lock()
	defer l.mu.Unlock()
	shared, ok := l.shared[most]
	if !ok || shared.end.Sub(now) < most {
		if l.shared == nil || len(l.shared) > 100 {
			l.shared = map[time.Duration]limit{}
		}
		shared.end = now.Add(most + most/2)
		shared.Context, shared.cancel = context.WithDeadline(context.Background(), shared.end)
		l.shared[most] = shared
	}
	shared.deadline = now.Add(most)
	return shared
}

// post carries the steps of an engine's sessions to one server. A few go at
// once, each over a connection of the client's pool; further ones gather and
// leave as one pipeline when a connection is free again. A thousand semaphores
// then cost a thousand steps, but few round trips and connections. (go-redis's
// automatic pipelining does the like, but always at the price of a goroutine's
// wake-up. BenchmarkWays has it, and others, side by side.)
type post struct {
	pool pool

	mu      sync.Mutex
	out     int       // places that are taken
	letters []*letter // that wait for a place
}

// letter is one command on its way.
type letter struct {
	cmd   redis.Cmder
	most  time.Duration // how long it may take
	carry []*letter     // set before ready: take these, and this one, along
	ready chan struct{} // gets one word when carried, or when it is to carry
}

func (p *post) take() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.pool.heeds && p.takeLocked()
}

func (p *post) takeLocked() bool {
	if p.out == places {
		return false
	}
	p.out++
	return true
}

func (p *post) direct(cmd redis.Cmder, most time.Duration) {
	defer p.next()
	p.alone(cmd, most)
}

func (p *post) alone(cmd redis.Cmder, most time.Duration) {
	p.pool.process(cmd, most)
	notSent(cmd)
}

// errNoConnection is what the end of a context means that a client for one server
// reports: on the wire it would have been a time-out of the network's.
var errNoConnection = fmt.Errorf("no connection in time: %w", redis.ErrPoolTimeout)

func notSent(cmd redis.Cmder) {
	if cmd.Err() == context.DeadlineExceeded { // itself, from the pool
		cmd.SetErr(errNoConnection)
	}
}

func (p *post) process(cmd redis.Cmder, most time.Duration) {
	p.mu.Lock()
	if p.takeLocked() {
		p.mu.Unlock()
		p.direct(cmd, most)
		return
	}
	l := &letter{cmd: cmd, most: most, ready: make(chan struct{}, 1)}
	p.letters = append(p.letters, l)
	p.mu.Unlock()
	if !p.await(l) {
		p.alone(cmd, most)
		return
	}
	if l.carry == nil {
		return
	}
	defer p.next()
	cmds := make([]redis.Cmder, len(l.carry))
	for i, other := range l.carry {
		cmds[i], most = other.cmd, min(most, other.most)
	}
	ctx := p.pool.limits.within(most)
	pipe := p.pool.rdb.Pipeline()
	_ = pipe.BatchProcess(ctx, cmds...) // only gathers
	_, _ = pipe.Exec(ctx)               // each command has its error
	for _, other := range l.carry {
		notSent(other.cmd)
		if other != l {
			other.ready <- struct{}{}
		}
	}
}

// await waits until a letter has been carried, or has a place to carry others.
// Those before it may have long leases, and so the time to wait for a server
// that hangs; a letter with less time than that takes its leave and goes alone.
func (p *post) await(l *letter) bool {
	timer := time.NewTimer(l.most / 2)
	defer timer.Stop()
	select {
	case <-l.ready:
		return true
	case <-timer.C:
	}
	p.mu.Lock()
	i := slices.Index(p.letters, l)
	if i >= 0 {
		p.letters = slices.Delete(p.letters, i, i+1)
	}
	p.mu.Unlock()
	if i < 0 { // it has been taken along just now
		<-l.ready
	}
	return i < 0
}

// next passes on a place to one of those who wait.
func (p *post) next() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.letters) == 0 {
		p.out--
		return
	}
	l, n := p.letters[0], min(len(p.letters), maxLetters)
	l.carry, p.letters = p.letters[:n:n], p.letters[n:]
	l.ready <- struct{}{}
}
