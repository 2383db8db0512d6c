package redisengine

import (
	"context"
	"encoding/json"
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"sema"
)

// session is one client's access to one semaphore. Its operations go through
// a combiner; its news come through the engine's inbox.
type session struct {
	*combiner
	engine  *Engine
	wake    func(sema.Wake)
	channel string // of its inbox
}

func newSession(e *Engine, name, id string, who sema.Client, wake func(sema.Wake)) *session {
	description, _ := json.Marshal(who) // strings and a number
	s := &session{engine: e, wake: wake}
	s.combiner = &combiner{
		carrier: e.carrier, name: name, keys: keysOf(name), client: id, description: string(description),
		news: func(message string) { wake(parseNews(message)) },
	}
	s.channel = s.keys.inbox(id)
	return s
}

// Client implements sema.Session.
func (s *session) Client() string { return s.client }

// Acquire implements sema.Session. News of a hand-off must find a listener, so
// the inbox is opened before this client queues for the first time; without
// contention it never is.
func (s *session) Acquire(ctx context.Context, r sema.Request) (sema.Answer, error) {
	if r.Wait && !s.engine.inbox.open(s) {
		try := r
		try.Wait = false
		a, err := s.one(ctx, "acquire", askOp(try))
		if err != nil || a.Status != sema.Refused {
			return a, err
		}
		if err := s.engine.inbox.listen(ctx, s); err != nil {
			return sema.Answer{}, s.wrap(ctx, "subscribe", err, true)
		}
	}
	return s.one(ctx, "acquire", askOp(r))
}

// Renew implements sema.Session.
func (s *session) Renew(ctx context.Context, rs []sema.Request) ([]sema.Answer, error) {
	ops := make([]op, len(rs))
	waiting := false
	for i, r := range rs {
		if r.Token == 0 {
			ops[i] = askOp(r)
			waiting = true
		} else {
			ops[i] = idOp(renewOp, r.ID, r.Lease)
		}
	}
	if waiting {
		s.engine.inbox.follow(ctx, s) // the slot may have moved to another node
	}
	return s.all(ctx, "renew", ops)
}

// Release implements sema.Session.
func (s *session) Release(ctx context.Context, id string) (bool, error) {
	a, err := s.one(ctx, "release", idOp(releaseOp, id, 0))
	return a.Status == found, err
}

// Revoke implements sema.Session.
func (s *session) Revoke(ctx context.Context, id string) (bool, error) {
	a, err := s.one(ctx, "revoke", idOp(revokeOp, id, 0))
	return a.Status == found, err
}

// SetLimit implements sema.Session.
func (s *session) SetLimit(ctx context.Context, limit int, pin bool) error {
	_, err := s.one(ctx, "limit", op{terms: terms{kind: limitOp, limit: limit}, pin: pin})
	return err
}

// State implements sema.Session.
func (s *session) State(ctx context.Context) (sema.State, error) {
	values, err := stateScript.Run(ctx, s.engine.rdb, s.keys.main[:]).Slice()
	if err != nil {
		return sema.State{}, s.wrap(ctx, "state", err, true)
	}
	snapshot, clients := parseState(values)
	if len(clients) == 0 {
		return snapshot, nil
	}
	found := map[string]*redis.StringCmd{}
	_, err = s.engine.rdb.Pipelined(ctx, func(p redis.Pipeliner) error {
		for _, c := range clients {
			found[c] = p.Get(ctx, s.keys.client(c))
		}
		return nil
	})
	if err != nil && err != redis.Nil {
		return sema.State{}, s.wrap(ctx, "state", err, true)
	}
	describe := func(id string) (who sema.Client) {
		if text, err := found[sema.ClientOf(id)].Result(); err == nil {
			_ = json.Unmarshal([]byte(text), &who) // somebody else's words: empty if not understood
		}
		return who
	}
	for i := range snapshot.Holders {
		snapshot.Holders[i].Client = describe(snapshot.Holders[i].ID)
	}
	for i := range snapshot.Waiters {
		snapshot.Waiters[i].Client = describe(snapshot.Waiters[i].ID)
	}
	return snapshot, nil
}

// Close implements sema.Session.
func (s *session) Close() error {
	s.engine.forget(s)
	s.engine.inbox.leave(s)
	s.shut()
	return nil
}

// parseNews reads what step.lua publishes. What it does not understand it
// leaves out: the message only tells, and a newer version may tell more.
func parseNews(message string) (w sema.Wake) {
	for line := range strings.Lines(message) {
		kind, rest, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
		switch kind {
		case "g":
			id, rest, _ := strings.Cut(rest, " ")
			token, rest, _ := strings.Cut(rest, " ")
			slot, ticket, _ := strings.Cut(rest, " ")
			g := sema.Grant{ID: id}
			var errs [3]error
			g.Token, errs[0] = strconv.ParseInt(token, 10, 64)
			g.Slot, errs[1] = strconv.Atoi(slot)
			g.Ticket, errs[2] = strconv.ParseInt(ticket, 10, 64)
			if errors.Join(errs[:]...) == nil {
				w.Grants = append(w.Grants, g)
			}
		case "a":
			w.Ask = true
		case "l":
			if us, err := strconv.ParseInt(rest, 10, 64); err == nil {
				w.Look = time.Duration(us) * time.Microsecond
			}
		}
	}
	return w
}

// parseState reads state.lua's answer, and names the clients in it.
func parseState(v []any) (st sema.State, clients []string) {
	now := number(v[0])
	st.Limit, st.Pinned = int(number(v[1])), number(v[2]) == 1
	slots, tokens := pairs(v[5]), pairs(v[6])
	seen := map[string]bool{}
	see := func(id string) {
		if c := sema.ClientOf(id); !seen[c] {
			seen[c] = true
			clients = append(clients, c)
		}
	}
	holders := v[3].([]any)
	for i := 0; i+1 < len(holders); i += 2 {
		id, revoked := strings.CutPrefix(holders[i].(string), "!")
		parsed, err := sema.ParseID(id)
		if err != nil {
			continue // not ours
		}
		h := sema.Holder{ID: id, Weight: parsed.Weight, Slot: -1, Revoked: revoked, Left: micros(number(holders[i+1]) - now)}
		if slot, ok := slots[id]; ok {
			h.Slot = int(slot)
		}
		if token, ok := tokens[id]; ok {
			h.Token, h.Age = token, micros(max(0, now-token))
		}
		st.Used += h.Weight
		st.Holders = append(st.Holders, h)
		see(id)
	}
	waiters := v[4].([]any)
	for i := 0; i+1 < len(waiters); i += 2 {
		id := waiters[i].(string)
		parsed, err := sema.ParseID(id)
		if err != nil {
			continue
		}
		st.Waiters = append(st.Waiters, sema.Waiter{ID: id, Weight: parsed.Weight, Waiting: micros(max(0, now-number(waiters[i+1])))})
		see(id)
	}
	return st, clients
}

func pairs(v any) map[string]int64 {
	list := v.([]any)
	m := make(map[string]int64, len(list)/2)
	for i := 0; i+1 < len(list); i += 2 {
		m[list[i].(string)] = number(list[i+1])
	}
	return m
}

// number reads an integer however the server chose to write it: an integer, a
// string, or a score as a float.
func number(v any) int64 {
	switch n := v.(type) {
	case int64:
		return n
	case float64:
		return int64(n)
	case string:
		if i, err := strconv.ParseInt(n, 10, 64); err == nil {
			return i
		}
		f, _ := strconv.ParseFloat(n, 64)
		return int64(f)
	}
	return 0
}

func micros(us int64) time.Duration { return time.Duration(us) * time.Microsecond }
