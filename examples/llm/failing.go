package main

import (
	"context"
	"errors"
	"sync/atomic"

	"sema"
	"sema/engine"
)

// failing is an engine that can be made to fail, as Redis does when it is killed.
type failing struct {
	sema.Engine
	failed atomic.Bool
}

// fail makes the engine fail until end is called.
func (e *failing) fail() (end func()) {
	e.failed.Store(true)
	return func() { e.failed.Store(false) }
}

// Open implements engine.Engine.
func (e *failing) Open(name string, who engine.Client, notify func(engine.Notification)) (engine.Session, error) {
	s, err := e.Engine.Open(name, who, notify)
	return &failingSession{s, e}, err
}

type failingSession struct {
	engine.Session
	engine *failing
}

// Step implements engine.Session.
func (s *failingSession) Step(ctx context.Context, c engine.Call) (engine.Reply, error) {
	if s.engine.failed.Load() {
		return engine.Reply{}, &engine.Error{Op: "step", NotExecuted: true, Temporary: true, Err: errors.New("connection refused")}
	}
	return s.Session.Step(ctx, c)
}
