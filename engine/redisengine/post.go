package redisengine

import (
	"context"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	// carriers is how many connections the steps of all semaphores use at once.
	carriers = 4
	// maxLetters bounds what goes over one of them at once.
	maxLetters = 1000
)

// post carries the steps of an engine's sessions to one server. A few go at
// once, each over a connection of the client's pool; further ones gather and
// leave as one pipeline when a connection is free again. A thousand semaphores
// then cost a thousand steps, but few round trips and connections. (go-redis's
// automatic pipelining does the like, but always at the price of a goroutine's
// wake-up, and sends again by itself what must not be.)
//
// In a cluster each step goes by itself, lest a node that hangs hold up those
// for others.
type post struct {
	rdb     redis.UniversalClient
	cluster bool

	mu      sync.Mutex
	out     int       // carriers on their way
	letters []*letter // that wait for one
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

// idle reports whether a command would leave at once.
func (p *post) idle() bool {
	if p.cluster {
		return true
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.out < carriers
}

// process carries out one command; it takes no longer than most once it has
// left, where the client heeds contexts. The result is in cmd.
func (p *post) process(cmd redis.Cmder, most time.Duration) {
	if p.cluster {
		_ = p.rdb.Process(within(most), cmd)
		return
	}
	p.mu.Lock()
	if p.out < carriers {
		p.out++
		p.mu.Unlock()
		_ = p.rdb.Process(within(most), cmd) // cmd has the error
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

// next passes the place of a carrier that is back to one of those who wait.
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
