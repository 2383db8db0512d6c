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
	"sema/internal/loop"
	"sema/internal/protocol"
	"sema/internal/rights"
	"sema/internal/wire"
)

const (
	// maxCall is the largest body of a Go client's call, in bytes.
	maxCall = 8 << 20

	// stepTime is the time limit of a step of the engine.
	stepTime = 10 * time.Second
)

// clientPrefix begins the names of all sessions of Go clients. The name of the client's
// token, a random word and a number follow, separated by dots.
const clientPrefix = "http."

// scratch is memory that successive calls reuse.
type scratch struct {
	in, out []byte
	step    wire.Step
}

var scratches = sync.Pool{New: func() any { return &scratch{in: make([]byte, 0, 4096), out: make([]byte, 0, 4096)} }}

// usualRequests is the most requests in a call of package sema's client.
const usualRequests = 500

// release makes the memory available to the next call, unless it has become too large.
func (m *scratch) release() {
	if cap(m.step.Call.Requests) <= 2*usualRequests {
		scratches.Put(m)
	}
}

func (s *Server) step(w http.ResponseWriter, r *http.Request, who *access.Who) error {
	if r.Header.Get("Content-Type") != wire.ContentType {
		return problem(http.StatusUnsupportedMediaType, "media-type", "want the content type %s", wire.ContentType)
	}
	m := scratches.Get().(*scratch)
	defer m.release()
	body, err := wire.ReadAll(http.MaxBytesReader(w, r.Body, maxCall), m.in[:0])
	m.in = body
	if err != nil {
		return unreadable(err)
	}
	answer, err := s.answer(r.Context(), m, m.out[:0], who, r)
	if err != nil {
		return err
	}
	m.out = answer
	w.Header()["Content-Type"] = wireType
	w.Header()["Content-Length"] = []string{strconv.Itoa(len(answer))}
	_, _ = w.Write(answer) // a client that does not receive it asks again
	return nil
}

// answer executes the call in m.in and appends the reply to b.
func (s *Server) answer(ctx context.Context, m *scratch, b []byte, who *access.Who, r *http.Request) ([]byte, error) {
	call := &m.step
	if call.Read(m.in) != nil {
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
	if call.Within > 0 && call.Within < within { // an abandoned call would delay the client's next one
		within = call.Within
	}
	ctx, cancel := s.callContext(ctx, within)
	defer cancel()
	began := time.Now()
	reply, err := s.execute(ctx, rs, call.Call, who, r)
	s.stats.calls.add(time.Since(began))
	if err != nil {
		return nil, err
	}
	return wire.AppendReply(b, &wire.Reply{As: rs.innerName, Reply: reply}, rs.client), nil
}

// callContext returns the context of a call. The context of an upgraded connection never ends, so
// calls of such connections share contexts, which may last half as long again.
func (s *Server) callContext(ctx context.Context, within time.Duration) (context.Context, context.CancelFunc) {
	if ctx.Done() != nil || within < loop.QuickCall {
		return context.WithTimeout(ctx, within)
	}
	most := loop.QuickCall
	for 2*most <= within { // only a few different time limits
		most *= 2
	}
	s.steps.Lock()
	defer s.steps.Unlock()
	return s.steps.Within(time.Now(), most), func() {}
}

var wireType = []string{wire.ContentType}

// sessionOf finds or opens the session of a call, and marks it as busy.
func (s *Server) sessionOf(call *wire.Step, who *access.Who) (*remoteSession, error) {
	rs := s.remotes.find(call.Client)
	if rs == nil {
		engineID, err := s.owner(call.Client, who)
		if err != nil {
			return nil, err
		}
		if call.Open == nil {
			return nil, problem(http.StatusConflict, wire.NoSession, "the server does not know the session: open it again")
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
		if err := s.checkSees(who, o.Name); err != nil {
			return nil, err
		}
		if rs, err = s.open(engineID, call.Client, o); err != nil {
			return nil, err
		}
	}
	if err := cmp.Or(s.checkOwner(who, call.Client), s.checkSees(who, rs.name)); err != nil {
		rs.remote.busy.Add(-1)
		return nil, err
	}
	return rs, nil
}

// checkClient checks that a client's description can be shown to operators.
func checkClient(c *engine.Client) error {
	for what, text := range map[string]string{"host": c.Host, "label": c.Label, "version": c.Version, "caller": c.Caller} {
		if err := engine.ValidateText(what, text, maxText); err != nil {
			return err
		}
	}
	return nil
}

// checkKey checks a request's key, the key's rule, the caps of all keys and the pools.
func checkKey(q *protocol.Request) error {
	switch {
	case q.Key == "" && (q.Kind == protocol.SetKey || q.Kind == protocol.UnsetKey):
		return &engine.ArgumentError{What: "key", Value: "", Want: "a key that is not empty"}
	case q.Takes != "" && q.Kind != protocol.Ask:
		return &engine.ArgumentError{What: "pools", Value: string(q.Takes), Want: "none, but in an ask"}
	case q.Cap < 0 || q.Cap > engine.MaxLimit:
		return &engine.ArgumentError{What: "cap", Value: q.Cap, Want: "0 … 2147483647"}
	case q.Share < 0 || q.Share > engine.MaxShare:
		return &engine.ArgumentError{What: "share", Value: q.Share, Want: "0 … 1000"}
	}
	caps := q.Caps
	for i, n := range caps {
		if n == -1 && q.Kind == protocol.SetLimit { // ends the cap
			caps[i] = 0
		}
	}
	least := 1
	if q.Kind == protocol.SetLimit || q.Kind == protocol.Release {
		least = 0 // ends a pool; nothing was used
	}
	return cmp.Or(caps.Validate(), q.Target.Validate(), q.Pools.Validate(least))
}

const (
	maxText  = 255 // bytes of a host, a label or a caller
	maxLives = 64
)

// owner checks that a session's name belongs to the token. It returns the name of the
// session's engine.
func (s *Server) owner(client string, who *access.Who) (engineID string, err error) {
	if _, err := engine.ParseID(client + "-1-1"); err != nil {
		return "", problem(http.StatusBadRequest, "argument", "%q is not a session's name", shorten(client))
	}
	i := strings.LastIndexByte(client, '.')
	if !strings.HasPrefix(client, clientPrefix) || i <= len(clientPrefix) {
		return "", problem(http.StatusBadRequest, "argument", "%q is not a session's name: want %sTOKEN.WORD.NUMBER", client, clientPrefix)
	}
	return client[:i], s.checkOwner(who, client)
}

// checkOwner refuses a session of another token.
func (s *Server) checkOwner(who *access.Who, client string) error {
	if s.tokens != nil && !ownedBy(client, who) {
		return problem(http.StatusForbidden, "forbidden", "the session %q belongs to another token than %q", client, who.Name)
	}
	return nil
}

// ownedBy reports whether the name of a session, or of a permit's session, contains the name
// of the token.
func ownedBy(client string, who *access.Who) bool {
	rest, ok := strings.CutPrefix(client, clientPrefix)
	name, _, _ := strings.Cut(rest, ".")
	return ok && name == who.Name
}

func shorten(text string) string { return text[:min(len(text), 60)] }

func requiredRight(q *protocol.Request) string {
	switch q.Kind {
	case protocol.Ask, protocol.Renew, protocol.Release, protocol.Report, protocol.Cooldown:
		return rights.Use
	case protocol.SetLimit:
		if q.Auto != nil { // holders may adapt a limit that no operator has pinned
			return rights.Use
		}
	}
	return rights.Admin
}

// execute checks a call, translates its ids, and executes it.
func (s *Server) execute(ctx context.Context, rs *remoteSession, c protocol.Call, who *access.Who, r *http.Request) (protocol.Reply, error) {
	var several map[int][]engine.ID // of the requests whose permit may have several ids
	for i := range c.Requests {
		q := &c.Requests[i]
		if q.Kind < protocol.Ask || q.Kind > protocol.Cooldown {
			return protocol.Reply{}, problem(http.StatusBadRequest, "argument", "a request of unknown kind %d", q.Kind)
		}
		if !rights.May(*who, requiredRight(q)) {
			return protocol.Reply{}, forbidden(who, requiredRight(q)).of(rs.name)
		}
		if err := cmp.Or(checkKey(q), checkReport(q)); err != nil {
			return protocol.Reply{}, err
		}
		if q.Who != nil {
			if err := checkClient(q.Who); err != nil {
				return protocol.Reply{}, err
			}
		}
		q.Detached = true // the holder is not this process
		if q.ID == (engine.ID{Client: rs.client}) {
			q.ID = engine.ID{} // the request concerns no permit
			continue
		}
		if q.ID.Client == rs.client && rs.newer(q.ID.Number) {
			q.ID, q.Mine = rs.innerID(q.ID, rs.innerName), false // only this session has the permit
			continue
		}
		candidates, err := s.candidates(ctx, rs, q, who)
		if err != nil {
			return protocol.Reply{}, err
		}
		if len(candidates) == 1 {
			q.ID = candidates[0]
			continue
		}
		if several == nil {
			several = map[int][]engine.ID{}
		}
		several[i] = candidates
	}
	select { // one call at a time; an abandoned call may still run
	case rs.callLock <- struct{}{}:
		defer func() { <-rs.callLock }()
	case <-ctx.Done():
		return protocol.Reply{}, problemOf(ctx.Err()).unchanged()
	}
	c.Number <<= partBits
	audited := s.audited(ctx, rs, c)
	for _, a := range audited {
		if err := s.auditFirst(a, who, r); err != nil {
			return protocol.Reply{}, err
		}
	}
	var reply protocol.Reply
	var err error
	if several == nil {
		reply, err = rs.inner.Step(ctx, c)
	} else {
		reply, err = rs.executeSeparately(ctx, c, several)
	}
	for i, a := range audited {
		a.Result = resultOf(reply, i, err)
		s.options.Audit(rights.By(a, *who, r))
	}
	if err != nil {
		return protocol.Reply{}, err
	}
	s.auditAdapted(rs, c, reply, who, r)
	rs.outer(reply.Notification.Grants)
	return reply, nil
}
