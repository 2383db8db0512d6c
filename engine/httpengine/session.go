package httpengine

import (
	"context"
	"encoding/binary"
	"errors"
	"net/http"
	"net/url"
	"sync/atomic"
	"time"

	"sema/engine"
	"sema/internal/wire"
)

// session is one client's access to one semaphore.
type session struct {
	engine *Engine
	name   string
	who    engine.Client
	notify func(engine.Notification)
	client string
	opened atomic.Bool // some server has answered a call
	closed atomic.Bool

	// Of Step, of which there is one at a time.
	as     string // the session of the server's engine; "": the server does not know this one
	was    []wire.Life
	asked  uint64 // the largest number of a permit that was ever asked for
	asks   bool   // something was asked for since the server opened it
	waits  bool   // somebody has waited: the stream is there
	answer []byte
}

// maxLives bounds how many earlier lives of a session count. They end with the
// leases that were given in them.
const maxLives = 16

// Client implements engine.Session.
func (s *session) Client() string { return s.client }

// Step implements engine.Session. To a server that does not know the session it
// is sent again, with what opens it.
func (s *session) Step(ctx context.Context, c engine.Call) (engine.Reply, error) {
	if s.closed.Load() || s.engine.isClosed() {
		return engine.Reply{}, &engine.Error{Op: "step", Name: s.name, NotExecuted: true, Err: engine.ErrClosed}
	}
	asked, asks := s.asked, s.asks
	for i := range c.Requests {
		r := &c.Requests[i]
		if r.Kind != engine.Ask {
			continue
		}
		asks = true
		if r.ID.Client == s.client {
			asked = max(asked, r.ID.Number)
		}
		if r.Wait && !s.waits {
			s.waits = true
			s.engine.startNews()
		}
	}
	reply, err := s.send(ctx, c)
	if err != nil && errors.Is(err.Err, errNoSession) {
		if s.asks && s.as != "" {
			s.was = append(s.was, wire.Life{As: s.as, Upto: s.asked})
			s.was = s.was[max(0, len(s.was)-maxLives):]
		}
		s.as = ""
		reply, err = s.send(ctx, c)
	}
	s.asked, s.asks = asked, asks
	if err != nil {
		return engine.Reply{}, err
	}
	return reply, nil
}

// send makes one request of a call.
func (s *session) send(ctx context.Context, c engine.Call) (engine.Reply, *engine.Error) {
	step := wire.Step{Client: s.client, Call: c}
	if s.as == "" {
		step.Open = &wire.Open{Name: s.name, Who: s.who, Was: s.was}
	}
	if until, ok := ctx.Deadline(); ok {
		step.Within = max(1, time.Until(until))
	}
	// Room for the length in front. A request that was given up may still be read
	// by the transport, so each call has its own.
	room := make([]byte, binary.MaxVarintLen64, 128+40*len(c.Requests))
	body := wire.AppendStep(room, &step)
	answer, failure := s.engine.lines.call(ctx, body, s.answer)
	skip := 1
	if failure != nil && failure.Err == errNoLine {
		skip = 0
		answer, failure = s.post(ctx, body[binary.MaxVarintLen64:])
	}
	if failure != nil {
		failure.Op, failure.Name = "step", s.name
		return engine.Reply{}, failure
	}
	s.answer = answer[:0]
	reply := wire.Reply{As: s.as, Reply: engine.Reply{Answers: make([]engine.Answer, 0, len(c.Requests))}}
	if err := reply.Read(answer[skip:], s.client); err != nil || reply.As == "" {
		return engine.Reply{}, &engine.Error{Op: "step", Name: s.name, Err: wire.ErrMalformed, Hint: notOurs}
	}
	s.as = reply.As
	s.opened.Store(true)
	return reply.Reply, nil
}

// post makes a request of its own of a call.
func (s *session) post(ctx context.Context, body []byte) ([]byte, *engine.Error) {
	r, err := s.engine.request(ctx, http.MethodPost, "/v1/engine/step", body)
	if err != nil {
		return nil, unsent("", "", err)
	}
	r.Header["Content-Type"] = wireType
	return s.engine.do(r, "", "", s.answer)
}

var wireType = []string{wire.ContentType}

// State implements engine.Session.
func (s *session) State(ctx context.Context) (engine.State, error) {
	st := engine.State{}
	if s.closed.Load() {
		return st, &engine.Error{Op: "state", Name: s.name, NotExecuted: true, Err: engine.ErrClosed}
	}
	if err := s.engine.get(ctx, "state", s.name, "/v1/engine/state?name="+url.QueryEscape(s.name), &st); err != nil {
		return engine.State{}, err
	}
	return st, nil
}

// Reports implements engine.Reporting.
func (s *session) Reports(ctx context.Context) (engine.Reports, error) {
	if s.closed.Load() {
		return engine.Reports{}, &engine.Error{Op: "reports", Name: s.name, NotExecuted: true, Err: engine.ErrClosed}
	}
	var r engine.Reports
	if err := s.engine.get(ctx, "reports", s.name, "/v1/engine/reports?name="+url.QueryEscape(s.name), &r); err != nil {
		return engine.Reports{}, err
	}
	return r, nil
}

// closeTime bounds telling the server that a session is over.
const closeTime = 500 * time.Millisecond

// Close implements engine.Session.
func (s *session) Close() error {
	e := s.engine
	e.mu.Lock()
	known := e.sessions[s.client] == s
	delete(e.sessions, s.client)
	e.mu.Unlock()
	if s.closed.Swap(true) || !known || !s.opened.Load() {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), closeTime)
	defer cancel()
	r, err := e.request(ctx, http.MethodDelete, "/v1/engine/sessions/"+s.client, nil)
	if err == nil {
		_, _ = e.do(r, "close", s.name, nil) // it forgets the session by itself, later
	}
	return nil
}
