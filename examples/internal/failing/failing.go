// Package failing has an engine for examples that can be made to fail, as Redis does when it
// is killed. In a program's own tests package sematest does that, and more.
package failing

import (
	"context"
	"errors"
	"sync/atomic"

	"sema"
	"sema/engine"
	"sema/internal/protocol"
)

// Engine passes calls on to another engine, until it is made to fail.
type Engine struct {
	sema.Engine
	failed atomic.Bool
}

// Fail makes the engine fail until end is called.
func (e *Engine) Fail() (end func()) {
	e.failed.Store(true)
	return func() { e.failed.Store(false) }
}

// Open implements sema.Engine.
func (e *Engine) Open(name string, who engine.Client, notify func(protocol.Notification)) (protocol.Session, error) {
	s, err := e.Engine.Open(name, who, notify)
	return &session{s, e}, err
}

type session struct {
	protocol.Session
	engine *Engine
}

// Step implements protocol.Session.
func (s *session) Step(ctx context.Context, c protocol.Call) (protocol.Reply, error) {
	if s.engine.failed.Load() {
		return protocol.Reply{}, &engine.Error{Op: "step", NotExecuted: true, Temporary: true, Err: errors.New("connection refused")}
	}
	return s.Session.Step(ctx, c)
}
