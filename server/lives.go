package server

import (
	"context"
	"strings"

	"sema/access"
	"sema/engine"
	"sema/internal/protocol"
	"sema/internal/rights"
)

// A session of `sema serve` has a new life after each restart of the server. This file finds permits of earlier lives, and those of
// other servers over the same engine.

// candidates are the ids that a request's permit may have in the engine, oldest first. For
// another session's permit, the request needs that session's token or the right admin. A
// named permit has the same id everywhere.
func (s *Server) candidates(ctx context.Context, rs *remoteSession, q *protocol.Request, who *access.Who) ([]engine.ID, error) {
	id := q.ID
	if id.Client == rs.client {
		q.Mine = false // only this session has the permit
		return rs.all(id), nil
	}
	if !rights.May(*who, rights.Admin) && !ownedBy(id.Client, who) {
		return nil, forbidden(who, rights.Admin)
	}
	if !strings.HasPrefix(id.Client, clientPrefix) {
		return []engine.ID{id}, nil
	}
	if other := s.remotes.byClient(id.Client); other != nil && other.name == rs.name {
		return other.all(id), nil
	}
	// The permit belongs to a client that this server does not know, or has forgotten.
	st, err := rs.inner.State(ctx)
	if err != nil {
		return nil, err
	}
	if h := find(&st, id); h.ID != "" {
		id, err = engine.ParseID(h.ID)
	}
	return []engine.ID{id}, err // if there is neither permit nor ticket, the engine says so
}

// find returns the holder of a permit in a state of the engine, or the waiter with such a ticket; none: its ID is "". id is
// what the engine, this server, or another server over the same engine shows of it.
func find(st *engine.State, id engine.ID) engine.Holder {
	is := func(text string) bool {
		found, err := engine.ParseID(text)
		wanted := id
		if strings.HasPrefix(id.Client, clientPrefix) {
			wanted.Client, wanted.Number = found.Client, baseOf(id.Client)+id.Number
		}
		return err == nil && (found == wanted || found == id)
	}
	for _, h := range st.Holders {
		if is(h.ID) {
			return h
		}
	}
	for _, w := range st.Waiters {
		if is(w.ID) {
			return engine.Holder{ID: w.ID, Weight: w.Weight, Slot: -1, Key: w.Key, Client: w.Client}
		}
	}
	return engine.Holder{}
}

// newer reports whether the permit with this number cannot be from an earlier life.
func (rs *remoteSession) newer(number uint64) bool {
	n := len(rs.earlier)
	return n == 0 || number > rs.earlier[n-1].Upto
}

// all are the ids that a permit may have in the engine.
func (rs *remoteSession) all(id engine.ID) []engine.ID {
	var list []engine.ID
	for _, as := range rs.livesOf(id.Number) {
		list = append(list, rs.innerID(id, as))
	}
	return list
}

// partBits leaves room between the numbers of calls for the numbers of a call's parts. The
// engine may take a second step with the same number for a copy.
const partBits = 16

// executeSeparately executes a call with permits of earlier lives: one step for each request and
// for each id that its permit may have. A ticket of an earlier life would never be
// notified. So a request does not wait in an earlier life, only in this one.
func (rs *remoteSession) executeSeparately(ctx context.Context, c protocol.Call, several map[int][]engine.ID) (protocol.Reply, error) {
	var all protocol.Reply
	for i, q := range c.Requests {
		candidates := several[i]
		if candidates == nil {
			candidates = []engine.ID{q.ID}
		}
		var answer protocol.Answer
		for k, id := range candidates {
			one := q
			one.ID = id
			last := k == len(candidates)-1
			one.Wait = q.Wait && last
			if !last {
				one.Who = nil // with it the engine would take the id for a named permit
			}
			c.Number++
			reply, err := rs.inner.Step(ctx, protocol.Call{Number: c.Number, Fence: c.Fence, Keep: c.Keep, Requests: []protocol.Request{one}})
			if err != nil {
				return protocol.Reply{}, maybeExecuted(err)
			}
			merge(&all, reply)
			a := reply.Answers[0]
			if answer.Status != protocol.Done {
				answer = a
			}
			if q.Kind != protocol.Release && a.Status != protocol.Refused && a.Status != protocol.Gone {
				break
			}
		}
		all.Answers = append(all.Answers, answer)
	}
	return all, nil
}

// maybeExecuted changes an error to say that a part of the call may have been executed.
func maybeExecuted(err error) error {
	if failure, ok := err.(*engine.Error); ok {
		unsure := *failure
		unsure.NotExecuted = false
		return &unsure
	}
	return err
}

// merge adds a step's reply to all, except for its answers.
func merge(all *protocol.Reply, one protocol.Reply) {
	all.Unreachable = all.Unreachable || one.Unreachable
	all.Limit, all.Caps, all.Pools, all.Room = one.Limit, one.Caps, one.Pools, one.Room
	all.Keep, all.Recalled = one.Keep, all.Recalled || one.Recalled
	if one.Recheck > 0 { // the latest step knows all leases
		all.Recheck = one.Recheck
	}
	all.Notification.Merge(one.Notification)
}
