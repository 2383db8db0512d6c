package httpengine

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"sync/atomic"
	"time"

	"sema/engine"
	"sema/internal/protocol"
	"sema/internal/wire"
)

// session is one client's access to one semaphore.
type session struct {
	engine *Engine
	name   string
	who    engine.Client
	notify func(protocol.Notification)
	client string
	opened atomic.Bool // a server has answered a call
	closed atomic.Bool

	// Used by the running Step only.
	inner     string      // the session of the server's engine; "": the session is not open
	earlier   []wire.Life // former inner sessions, which may still hold permits
	highest   uint64      // the largest number of a permit that was asked for
	used      bool        // the inner session was asked for a permit
	streaming bool        // an Ask had Wait, so the stream was started
	answer    []byte      // memory for the next answer
}

// maxLives bounds the number of earlier lives that a session reports. A life matters
// until the leases granted in it have ended.
const maxLives = 16

// Client implements protocol.Session.
func (s *session) Client() string { return s.client }

// Step implements protocol.Session. If the server does not know the session, Step opens it
// and sends the call again.
func (s *session) Step(ctx context.Context, c protocol.Call) (protocol.Reply, error) {
	if s.closed.Load() || s.engine.isClosed() {
		return protocol.Reply{}, notExecuted("step", s.name, engine.ErrClosed)
	}
	highest, used := s.highest, s.used
	for i := range c.Requests {
		r := &c.Requests[i]
		if r.Kind != protocol.Ask {
			continue
		}
		used = true
		if r.ID.Client == s.client {
			highest = max(highest, r.ID.Number)
		}
		if r.Kind == protocol.Ask && r.Wait && !s.streaming {
			s.streaming = true
			s.engine.startStream()
		}
	}
	reply, err := s.send(ctx, c)
	if err != nil && errors.Is(err.Err, errNoSession) {
		if s.used && s.inner != "" {
			s.earlier = append(s.earlier, wire.Life{As: s.inner, Upto: s.highest})
			s.earlier = s.earlier[max(0, len(s.earlier)-maxLives):]
		}
		s.inner = ""
		reply, err = s.send(ctx, c)
	}
	s.highest, s.used = highest, used
	if err != nil {
		return protocol.Reply{}, err
	}
	return reply, nil
}

func (s *session) send(ctx context.Context, c protocol.Call) (protocol.Reply, *engine.Error) {
	step := wire.Step{Client: s.client, Call: c}
	if s.inner == "" {
		step.Open = &wire.Open{Name: s.name, Who: s.who, Was: s.earlier}
	}
	if until, ok := ctx.Deadline(); ok {
		step.Within = max(1, time.Until(until))
	}
	// The transport may still read the body of an abandoned request, so each call has its
	// own.
	room := make([]byte, wire.Room, 128+40*len(c.Requests))
	body := wire.AppendStep(room, &step)
	answer, failure := s.engine.call(ctx, body, s.answer)
	skip := 1
	if failure != nil && failure.Err == errNoUpgrade {
		skip = 0
		answer, failure = s.post(ctx, body[wire.Room:])
	}
	if failure != nil {
		failure.Op, failure.Name = "step", s.name
		return protocol.Reply{}, failure
	}
	s.answer = answer[:0]
	reply := wire.Reply{As: s.inner, Reply: protocol.Reply{Answers: make([]protocol.Answer, 0, len(c.Requests))}}
	if err := reply.Read(answer[skip:], s.client); err != nil || reply.As == "" || !fits(c.Requests, reply.Reply.Answers) {
		return protocol.Reply{}, &engine.Error{Op: "step", Name: s.name, Err: wire.ErrMalformed, Hint: checkURL}
	}
	s.inner = reply.As
	s.opened.Store(true)
	return reply.Reply, nil
}

// fits reports whether each answer names a key and a pool that its request has: callers cut the request's key there.
func fits(requests []protocol.Request, answers []protocol.Answer) bool {
	for i := range min(len(requests), len(answers)) {
		d, p := answers[i].Depth, answers[i].Pool
		if d == 0 && p == 0 {
			continue
		}
		if t := &requests[i].Target; d < 0 || d > len(t.Key.Names()) || p < 0 || p > len(t.Takes.Map()) {
			return false
		}
	}
	return true
}

// post sends a call as a plain HTTP request.
func (s *session) post(ctx context.Context, body []byte) ([]byte, *engine.Error) {
	r, err := s.engine.request(ctx, http.MethodPost, "/v1/engine/step", body)
	if err != nil {
		return nil, notExecuted("", "", err)
	}
	r.Header["Content-Type"] = wireType
	return s.engine.do(r, "", "", s.answer)
}

var wireType = []string{wire.ContentType}

// State implements protocol.Session.
func (s *session) State(ctx context.Context) (engine.State, error) {
	return read[engine.State](ctx, s, "state")
}

// Reports implements protocol.Reporting.
func (s *session) Reports(ctx context.Context) (protocol.Reports, error) {
	return read[protocol.Reports](ctx, s, "reports")
}

// read requests something about the semaphore. op is also the last part of the path.
func read[T any](ctx context.Context, s *session, op string) (v T, err error) {
	if s.closed.Load() {
		return v, notExecuted(op, s.name, engine.ErrClosed)
	}
	err = s.engine.get(ctx, op, s.name, "/v1/engine/"+op+"?name="+url.QueryEscape(s.name), &v)
	return v, err
}

// closeTime bounds the request that closes a session at the server.
const closeTime = 500 * time.Millisecond

// Close implements protocol.Session.
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
		_, _ = e.do(r, "close", s.name, nil) // if this fails, the server closes the session later
	}
	return nil
}
