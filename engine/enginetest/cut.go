package enginetest

import (
	"context"
	"errors"
	"sync/atomic"

	"sema"
)

// cutEngine is an engine whose client can be cut off: from then on its calls
// fail after having been carried out or not, and its news are lost, as if a
// cable were pulled. To the store it looks dead.
type cutEngine struct {
	sema.Engine
	cut     atomic.Bool  // calls fail, news are lost
	deaf    atomic.Bool  // only news are lost
	forgets atomic.Bool  // calls are carried out and then fail
	refuses atomic.Bool  // Renew fails, certainly not carried out
	limits  atomic.Int64 // calls of SetLimit
}

var errCut = errors.New("the test cut the line")

func (e *cutEngine) Open(name string, c sema.Client, wake func(sema.Wake)) (sema.Session, error) {
	s, err := e.Engine.Open(name, c, func(w sema.Wake) {
		if !e.cut.Load() && !e.deaf.Load() {
			wake(w)
		}
	})
	return &cutSession{Session: s, engine: e}, err
}

type cutSession struct {
	sema.Session
	engine *cutEngine
}

func (s *cutSession) broken(op string, executed bool) error {
	if s.engine.cut.Load() || executed && s.engine.forgets.Load() {
		return &sema.EngineError{Op: op, NotExecuted: !executed, Err: errCut}
	}
	return nil
}

func (s *cutSession) Acquire(ctx context.Context, r sema.Request) (sema.Answer, error) {
	if err := s.broken("acquire", false); err != nil {
		return sema.Answer{}, err
	}
	a, err := s.Session.Acquire(ctx, r)
	return a, errors.Join(err, s.broken("acquire", true))
}

func (s *cutSession) Renew(ctx context.Context, rs []sema.Request) ([]sema.Answer, error) {
	if err := s.broken("renew", false); err != nil {
		return nil, err
	}
	if s.engine.refuses.Load() && rs[0].Token != 0 {
		return nil, &sema.EngineError{Op: "renew", NotExecuted: true, Err: errCut}
	}
	as, err := s.Session.Renew(ctx, rs)
	return as, errors.Join(err, s.broken("renew", true))
}

func (s *cutSession) Release(ctx context.Context, id string) (bool, error) {
	if err := s.broken("release", false); err != nil {
		return false, err
	}
	found, err := s.Session.Release(ctx, id)
	return found, errors.Join(err, s.broken("release", true))
}

func (s *cutSession) SetLimit(ctx context.Context, limit int, pin bool) error {
	s.engine.limits.Add(1)
	return s.Session.SetLimit(ctx, limit, pin)
}
