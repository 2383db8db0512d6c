package redisengine

import (
	"context"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	// places is how many connections the steps of all semaphores use at once.
	places = 4
	// maxLetters bounds what goes over one of them at once.
	maxLetters = 1000
)

// carrier brings commands to the server.
type carrier interface {
	// process carries out one command, whose result is then in cmd. Once it has
	// left it takes no longer than most, where the client heeds contexts.
	process(cmd redis.Cmder, most time.Duration)
	// idle reports whether a command would leave at once.
	idle() bool
}

// carry chooses the carrier. In a cluster each step goes by itself, lest a node
// that hangs hold up those for others.
func carry(rdb redis.UniversalClient, cluster bool) carrier {
	if cluster {
		return pool{rdb}
	}
	return &post{rdb: rdb}
}

// pool carries each command by itself.
type pool struct{ rdb redis.UniversalClient }

func (p pool) process(cmd redis.Cmder, most time.Duration) {
	ctx := within(most)
	if most <= quickAttempt {
		// The client's waits for a connection end with the context only if it
		// is a real one.
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(context.Background(), most)
		defer cancel()
	}
	_ = p.rdb.Process(ctx, cmd) // cmd has the error
}

func (p pool) idle() bool { return true }

// post carries the steps of an engine's sessions to one server. A few go at
// once, each over a connection of the client's pool; further ones gather and
// leave as one pipeline when a connection is free again. A thousand semaphores
// then cost a thousand steps, but few round trips and connections. (go-redis's
// automatic pipelining does the like, but always at the price of a goroutine's
// wake-up. BenchmarkWays has it, and others, side by side.)
type post struct {
	rdb redis.UniversalClient

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

// until is a context with a deadline but without a timer: go-redis asks for
// the deadline alone.
type until struct {
	context.Context
	deadline time.Time
}

func (u until) Deadline() (time.Time, bool) { return u.deadline, true }

func within(d time.Duration) context.Context {
	return until{context.Background(), time.Now().Add(d)}
}

func (p *post) idle() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.out < places
}

func (p *post) process(cmd redis.Cmder, most time.Duration) {
	p.mu.Lock()
	if p.out < places {
		p.out++
		p.mu.Unlock()
		pool{p.rdb}.process(cmd, most)
		p.next()
		return
	}
	l := &letter{cmd: cmd, most: most, ready: make(chan struct{}, 1)}
	p.letters = append(p.letters, l)
	p.mu.Unlock()
	<-l.ready
	if l.carry == nil {
		return
	}
	cmds := make([]redis.Cmder, len(l.carry))
	for i, other := range l.carry {
		cmds[i], most = other.cmd, min(most, other.most)
	}
	pipe := p.rdb.Pipeline()
	_ = pipe.BatchProcess(context.Background(), cmds...) // only gathers
	_, _ = pipe.Exec(within(most))                       // each command has its error
	for _, other := range l.carry {
		if other != l {
			other.ready <- struct{}{}
		}
	}
	p.next()
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
