package server

import (
	"context"
	"strings"

	"sema/access"
	"sema/engine"
)

// candidates are the ids that a request's permit may have to the engine, oldest
// first. What is not the session's own takes the same token, or admin. A named
// permit has one id everywhere.
func (s *Server) candidates(ctx context.Context, rs *remoteSession, q *engine.Request, who *Who) ([]engine.ID, error) {
	id := q.ID
	if id.Client == rs.client {
		q.Mine = false // it is, under whichever name
		return rs.all(id), nil
	}
	if !who.May(access.Admin) && !ownedBy(id.Client, who) {
		return nil, forbidden(who, access.Admin)
	}
	if !strings.HasPrefix(id.Client, ClientPrefix) {
		return []engine.ID{id}, nil
	}
	if other := s.remotes.byClient(id.Client); other != nil && other.name == rs.name {
		return other.all(id), nil
	}
	// Of a client that this server does not know, or not any more.
	st, err := rs.inner.State(ctx)
	if err != nil {
		return nil, err
	}
	wanted := baseOf(id.Client) + id.Number
	for _, h := range st.Holders {
		if found, err := engine.ParseID(h.ID); err == nil && found.Number == wanted && found.Weight == id.Weight && found.Slot == id.Slot {
			return []engine.ID{found}, nil
		}
	}
	return []engine.ID{id}, nil // which the engine does not have
}

// newer reports whether a permit with this number was asked for in this life only.
func (rs *remoteSession) newer(number uint64) bool {
	n := len(rs.was)
	return n == 0 || number > rs.was[n-1].Upto
}

// all are the ids that a permit may have to the engine.
func (rs *remoteSession) all(id engine.ID) []engine.ID {
	var list []engine.ID
	for _, as := range rs.livesOf(id.Number) {
		list = append(list, rs.innerID(id, as))
	}
	return list
}

// partBits leaves room between the numbers of calls for those of a call's parts: of
// two steps with one number, the engine may take the second for a copy.
const partBits = 16

// carrySome carries out a call with permits of earlier lives: a step for each
// request, and for each id that it may be about. A ticket of an earlier life
// would never hear of its turn. So there a request only asks for what it may
// hold, and queues in this life.
func (rs *remoteSession) carrySome(ctx context.Context, c engine.Call, ids [][]engine.ID) (engine.Reply, error) {
	var all engine.Reply
	for i, q := range c.Requests {
		candidates := ids[i]
		if candidates == nil {
			candidates = []engine.ID{q.ID}
		}
		var answer engine.Answer
		for k, id := range candidates {
			one := q
			one.ID = id
			last := k == len(candidates)-1
			one.Wait = q.Wait && last
			if !last {
				one.Who = nil // it would make the permit that of this life
			}
			c.Number++
			reply, err := rs.inner.Step(ctx, engine.Call{Number: c.Number, Fence: c.Fence, Keep: c.Keep, Requests: []engine.Request{one}})
			if err != nil {
				return engine.Reply{}, carriedSome(err)
			}
			if len(reply.Answers) == 0 { // the call came too late
				return reply, nil
			}
			merge(&all, reply)
			a := reply.Answers[0]
			if answer.Status != engine.Done {
				answer = a
			}
			if q.Kind != engine.Release && a.Status != engine.Refused && a.Status != engine.Gone {
				break
			}
		}
		all.Answers = append(all.Answers, answer)
	}
	return all, nil
}

// carriedSome is an error after which part of a call may have been carried out.
func carriedSome(err error) error {
	failure, ok := err.(*engine.Error)
	if !ok {
		return err
	}
	unsure := *failure
	unsure.NotExecuted = false
	return &unsure
}

// merge adds what a step said beside its answer.
func merge(all *engine.Reply, one engine.Reply) {
	all.Unreachable = all.Unreachable || one.Unreachable
	all.Limit, all.PerKey, all.Room = one.Limit, one.PerKey, one.Room
	all.Leave, all.Recalled = one.Leave, all.Recalled || one.Recalled
	if one.Recheck > 0 { // the newest knows of all leases
		all.Recheck = one.Recheck
	}
	all.Notification.Merge(one.Notification)
}
