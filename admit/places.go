package admit

import (
	"cmp"
	"context"
	"errors"
	"sync"
)

// places are what Local lets requests through by: one of its name and then one of all. A request with a
// permit takes them too, and runs even if none are free: so they bound what runs of both kinds.
type places struct {
	mu    sync.Mutex
	all   share
	named map[string]*share // of those that have a place or wait for one
}

// share is all places, or those of a name.
type share struct {
	places chan struct{}
	beyond int // requests with a permit that found no place free
	users  int
}

// take takes a place even if none is free.
func (s *share) take() {
	select {
	case s.places <- struct{}{}:
	default:
		s.beyond++
	}
}

// leave gives a place back. It is free once nobody is beyond the places.
func (s *share) leave() {
	if s.beyond > 0 {
		s.beyond--
	} else {
		<-s.places
	}
}

// errAnswers says that the engine was back before a place was free.
var errAnswers = errors.New("the engine answers again")

// errNoPlace says that there is no place for a request that does not wait.
var errNoPlace = errors.New("no place is free")

// enter takes a place, until leave is called. It fails with errAnswers when over is
// closed before.
func (p *places) enter(ctx context.Context, over <-chan struct{}, name string, o Options) (leave func(), err error) {
	own := p.of(name, o.Outage)
	if err := place(ctx, over, own.places, o.Wait != NoWait); err != nil {
		p.done(name, own)
		return nil, err
	}
	if err := place(ctx, over, p.all.places, o.Wait != NoWait); err != nil {
		p.done(name, own, own)
		return nil, err
	}
	return func() { p.done(name, own, &p.all, own) }, nil
}

// take takes a place for a request with a permit, until leave is called.
func (p *places) take(name string, o Options) (leave func()) {
	own := p.of(name, o.Outage)
	p.mu.Lock()
	defer p.mu.Unlock()
	own.take()
	p.all.take()
	return func() { p.done(name, own, &p.all, own) }
}

// of is the places of a name, until done.
func (p *places) of(name string, of Policy) *share {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.named == nil {
		p.all.places, p.named = make(chan struct{}, of.places), map[string]*share{}
	}
	s := p.named[name]
	if s == nil {
		s = &share{places: make(chan struct{}, cmp.Or(of.perKey, of.places))}
		p.named[name] = s
	}
	s.users++
	return s
}

// done ends the use of a name's places, and leaves what the user had.
func (p *places) done(name string, s *share, had ...*share) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, h := range had {
		h.leave()
	}
	if s.users--; s.users == 0 {
		delete(p.named, name)
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
