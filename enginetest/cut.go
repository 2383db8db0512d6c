package enginetest

import (
	"context"
	"errors"
	"sync/atomic"

	"sema"
	"sema/engine"
	"sema/internal/protocol"
)

// cutEngine is an engine whose client can be cut off: from then on its calls
// fail after having been carried out or not, and its news are lost, as if a
// cable were pulled. To the store it looks dead.
type cutEngine struct {
	sema.Engine
	cut      atomic.Bool  // calls fail, news are lost
	silenced atomic.Bool  // only news are lost
	forgets  atomic.Bool  // calls are carried out and then fail
	mislays  atomic.Bool  // the answer of one call is lost; then it is false again
	refuses  atomic.Bool  // renewals fail, certainly not carried out
	limits   atomic.Int64 // limits that were set
}

var errCut = errors.New("the test cut the line")

func (e *cutEngine) Open(name string, who engine.Client, notify func(protocol.Notification)) (protocol.Session, error) {
	s, err := e.Engine.Open(name, who, func(n protocol.Notification) {
		if !e.cut.Load() && !e.silenced.Load() {
			notify(n)
		}
	})
	return &cutSession{Session: s, engine: e}, err
}

type cutSession struct {
	protocol.Session
	engine *cutEngine
}

func (s *cutSession) Step(ctx context.Context, c protocol.Call) (protocol.Reply, error) {
	renews := false
	for _, r := range c.Requests {
		renews = renews || r.Kind == protocol.Renew
	}
	if s.engine.cut.Load() || renews && s.engine.refuses.Load() {
		return protocol.Reply{}, &engine.Error{Op: "step", NotExecuted: true, Err: errCut}
	}
	reply, err := s.Session.Step(ctx, c)
	for i, r := range c.Requests {
		if err == nil && r.Kind == protocol.SetLimit && reply.Answers[i].Status == protocol.Done {
			s.engine.limits.Add(1)
		}
	}
	if s.engine.silenced.Load() {
		reply.Notification = protocol.Notification{}
	}
	if s.engine.cut.Load() || s.engine.forgets.Load() {
		return protocol.Reply{}, &engine.Error{Op: "step", Err: errCut}
	}
	if s.engine.mislays.CompareAndSwap(true, false) {
		return protocol.Reply{}, &engine.Error{Op: "step", Temporary: true, Err: errCut}
	}
	return reply, err
}
