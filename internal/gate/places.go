package gate

import (
	"context"
	"errors"
	"sync"
)

// places are what Local lets requests through by: one of its name, if names are
// limited, and then one of all.
type places struct {
	mu    sync.Mutex
	all   chan struct{}
	named map[string]*share // of those that have a place or wait for one
}

// share is the places of a name.
type share struct {
	places chan struct{}
	users  int
}

// errAnswers says that the engine was back before a place was free.
var errAnswers = errors.New("the engine answers again")

// errNoPlace says that there is no place for a request that does not wait.
var errNoPlace = errors.New("no place is free")

// enter takes a place, until leave is called. It fails with errAnswers when over is
// closed before.
func (p *places) enter(ctx context.Context, over <-chan struct{}, name string, o Options) (leave func(), err error) {
	of, done := p.of(name, o.Policy.places, o.Policy.perKey)
	for i, c := range of {
		if err := place(ctx, over, c, o.Wait != NoWait); err != nil {
			back(of[:i])
			done()
			return nil, err
		}
	}
	return func() { back(of); done() }, nil
}

// of is where a request of that name has to find a place, in this order, and what
// to call when it has left. With perKey 0 names are not limited.
func (p *places) of(name string, all, perKey int) (of []chan struct{}, done func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.all == nil {
		p.all, p.named = make(chan struct{}, all), map[string]*share{}
	}
	if perKey == 0 {
		return []chan struct{}{p.all}, func() {}
	}
	s := p.named[name]
	if s == nil {
		s = &share{places: make(chan struct{}, perKey)}
		p.named[name] = s
	}
	s.users++
	return []chan struct{}{s.places, p.all}, func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		if s.users--; s.users == 0 {
			delete(p.named, name)
		}
	}
}

// place takes one of the places. The engine may have used up the wait: then a
// free one is taken all the same.
func place(ctx context.Context, over <-chan struct{}, places chan struct{}, wait bool) error {
	select {
	case places <- struct{}{}:
		return nil
	default:
		if !wait {
			return errNoPlace
		}
	}
	select {
	case places <- struct{}{}:
		return nil
	case <-over:
		return errAnswers
	case <-ctx.Done():
		return ctx.Err()
	}
}

func back(places []chan struct{}) {
	for _, c := range places {
		<-c
	}
}
