package server

import (
	"cmp"
	"context"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"sema/access"
	"sema/engine"
	"sema/internal/wire"
)

const (
	// maxCall bounds the body of a Go client's call, in bytes.
	maxCall = 8 << 20

	// stepTime bounds a step of the engine.
	stepTime = 10 * time.Second
)

// ClientPrefix begins the names of all sessions of Go clients. Behind it come
// the name of the client's token, a random word and a number, with dots between.
const ClientPrefix = "http."

var buffers = sync.Pool{New: func() any { b := make([]byte, 0, 4096); return &b }}

// step carries out one call of a Go client.
func (s *Server) step(w http.ResponseWriter, r *http.Request, who *Who) error {
	if r.Header.Get("Content-Type") != wire.ContentType {
		return problem(http.StatusUnsupportedMediaType, "media-type", "want the content type %s", wire.ContentType)
	}
	buffer := buffers.Get().(*[]byte)
	defer buffers.Put(buffer)
	body, err := wire.ReadAll(http.MaxBytesReader(w, r.Body, maxCall), (*buffer)[:0])
	*buffer = body[:0]
	if err != nil {
		return unreadable(err)
	}
	answer, err := s.answer(r.Context(), body, body[:0], who, r)
	if err != nil {
		return err
	}
	*buffer = answer[:0]
	w.Header()["Content-Type"] = wireType
	w.Header()["Content-Length"] = []string{strconv.Itoa(len(answer))}
	_, _ = w.Write(answer) // a client that does not read it asks again
	return nil
}

// answer carries out the call that a body has, and appends the reply to b, which
// may be the body's own memory.
func (s *Server) answer(ctx context.Context, body, b []byte, who *Who, r *http.Request) ([]byte, error) {
	call, err := wire.ReadStep(body)
	if err != nil {
		return nil, problem(http.StatusBadRequest, "malformed", "the body is no call")
	}
	rs, err := s.sessionOf(call, who)
	if err != nil {
		return nil, err
	}
	defer func() {
		rs.remote.seen.Store(time.Now().UnixNano())
		rs.remote.busy.Add(-1)
	}()
	within := stepTime
	if call.Within > 0 && call.Within < within { // a call that its caller gave up holds up the next one
		within = call.Within
	}
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	began := time.Now()
	reply, err := s.carry(ctx, rs, call.Call, who, r)
	s.stats.calls.add(time.Since(began))
	if err != nil {
		return nil, err
	}
	return wire.AppendReply(b, &wire.Reply{As: rs.as, Reply: reply}, rs.client), nil
}

var wireType = []string{wire.ContentType}

// sessionOf finds or opens the session of a call, and marks it as busy.
func (s *Server) sessionOf(call *wire.Step, who *Who) (*remoteSession, error) {
	engineID, err := s.owner(call.Client, who)
	if err != nil {
		return nil, err
	}
	rs := s.remotes.find(call.Client)
	if rs == nil {
		if call.Open == nil {
			return nil, problem(http.StatusConflict, "no-session", "the server does not know the session: open it again")
		}
		o := call.Open
		if err := engine.ValidateName(o.Name); err != nil {
			return nil, err
		}
		if err := checkClient(&o.Who); err != nil {
			return nil, err
		}
		if len(o.Was) > maxLives {
			return nil, problem(http.StatusBadRequest, "argument", "%d earlier lives of a session: want at most %d", len(o.Was), maxLives)
		}
		if err := s.sees(who, o.Name); err != nil {
			return nil, err
		}
		if rs, err = s.open(engineID, call.Client, o); err != nil {
			return nil, err
		}
	}
	if err := s.sees(who, rs.name); err != nil {
		rs.remote.busy.Add(-1)
		return nil, err
	}
	return rs, nil
}

// checkClient says whether a description can be shown to operators.
func checkClient(c *engine.Client) error {
	for what, text := range map[string]string{"host": c.Host, "label": c.Label, "version": c.Version, "caller": c.Caller} {
		if err := engine.ValidateText(what, text, maxText); err != nil {
			return err
		}
	}
	return nil
}

// checkKey says whether a request's key, and what the key may have, can be stored.
func checkKey(q *engine.Request) error {
	switch {
	case q.Key == "" && (q.Kind == engine.SetKey || q.Kind == engine.UnsetKey):
		return &engine.ArgumentError{What: "key", Value: "", Want: "a key that is not empty"}
	case q.Cap < 0 || q.Cap > engine.MaxLimit:
		return &engine.ArgumentError{What: "cap", Value: q.Cap, Want: "0 … 2147483647"}
	case q.Share < 0 || q.Share > engine.MaxShare:
		return &engine.ArgumentError{What: "share", Value: q.Share, Want: "0 … 1000"}
	case q.PerKey < -1 || q.PerKey > engine.MaxLimit:
		return &engine.ArgumentError{What: "limit per key", Value: q.PerKey, Want: "0 … 2147483647"}
	}
	return engine.ValidateText("key", q.Key, engine.MaxName)
}

const (
	maxText  = 255 // bytes of a host, a label or a caller
	maxLives = 64
)

// owner checks that a session's name belongs to the token, and is the name of
// the engine that the session is of.
func (s *Server) owner(client string, who *Who) (engineID string, err error) {
	if _, err := engine.ParseID(client + "-1-1"); err != nil {
		return "", problem(http.StatusBadRequest, "argument", "%q is no name of a session", cut(client))
	}
	i := strings.LastIndexByte(client, '.')
	if !strings.HasPrefix(client, ClientPrefix) || i <= len(ClientPrefix) {
		return "", problem(http.StatusBadRequest, "argument", "%q is no name of a session: want %sTOKEN.WORD.NUMBER", client, ClientPrefix)
	}
	if s.tokens != nil && !ownedBy(client, who) {
		return "", problem(http.StatusForbidden, "forbidden", "the session %q belongs to another token than %q", client, who.Name)
	}
	return client[:i], nil
}

// ownedBy reports whether a session's name, or a permit's, has the name of the
// token.
func ownedBy(client string, who *Who) bool {
	rest, ok := strings.CutPrefix(client, ClientPrefix)
	name, _, _ := strings.Cut(rest, ".")
	return ok && name == who.Name
}

// cut is the beginning of a text that somebody else wrote.
func cut(text string) string { return text[:min(len(text), 60)] }

// needs is the right that a kind of request wants.
func needs(q *engine.Request) access.Right {
	switch q.Kind {
	case engine.Ask, engine.Renew, engine.Release, engine.Report:
		return access.Use
	case engine.SetLimit:
		if q.Auto != nil { // the holders' own; an operator's wins
			return access.Use
		}
	}
	return access.Admin
}

// carry carries out a call: checked, with the ids translated.
func (s *Server) carry(ctx context.Context, rs *remoteSession, c engine.Call, who *Who, r *http.Request) (engine.Reply, error) {
	simple := true
	ids := make([][]engine.ID, 0, 8) // for each request that has several
	for i := range c.Requests {
		q := &c.Requests[i]
		if q.Kind < engine.Ask || q.Kind > engine.Report {
			return engine.Reply{}, problem(http.StatusBadRequest, "argument", "a request of unknown kind %d", q.Kind)
		}
		if !who.May(needs(q)) {
			return engine.Reply{}, forbidden(who, needs(q)).of(rs.name)
		}
		if err := cmp.Or(checkKey(q), checkReport(q)); err != nil {
			return engine.Reply{}, err
		}
		if q.Who != nil {
			if err := checkClient(q.Who); err != nil {
				return engine.Reply{}, err
			}
		}
		q.Detached = true // the holder is another process than the server
		if q.ID == (engine.ID{Client: rs.client}) {
			q.ID = engine.ID{} // of a request that is about no permit
			continue
		}
		candidates, err := s.candidates(ctx, rs, q, who)
		if err != nil {
			return engine.Reply{}, err
		}
		if len(candidates) == 1 {
			q.ID = candidates[0]
			continue
		}
		if simple {
			simple = false
			ids = make([][]engine.ID, len(c.Requests))
		}
		ids[i] = candidates
	}
	select { // one at a time; a call that was given up may be at it
	case rs.turn <- struct{}{}:
		defer func() { <-rs.turn }()
	case <-ctx.Done():
		p := problemOf(ctx.Err())
		p.NotExecuted = true
		return engine.Reply{}, p
	}
	c.Number <<= partBits
	audited := s.audited(ctx, rs, c, who)
	for _, a := range audited {
		if err := s.begin(a, who, r); err != nil {
			return engine.Reply{}, err
		}
	}
	var reply engine.Reply
	var err error
	if simple {
		reply, err = rs.inner.Step(ctx, c)
	} else {
		reply, err = rs.carrySome(ctx, c, ids)
	}
	for i, a := range audited {
		a.Result = resultOf(reply, i, err)
		s.options.Audit(a.By(*who, r))
	}
	if err != nil {
		return engine.Reply{}, err
	}
	s.adapted(rs, c, reply, who, r)
	rs.outer(reply.Notification.Grants)
	return reply, nil
}
