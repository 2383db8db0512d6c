package server

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"slices"
	"time"

	"sema/access"
	"sema/engine"
	"sema/internal/protocol"
	"sema/internal/rights"
	"sema/internal/view"
)

// operations are the names of kinds of requests in the audit log.
var operations = map[protocol.Kind]string{
	protocol.Revoke: "revoke", protocol.SetLimit: "limit", protocol.UnsetLimit: "unset-limit", protocol.Remove: "remove",
	protocol.Pause: "pause", protocol.Unpause: "unpause", protocol.Release: "release", protocol.SetKey: "set-key", protocol.UnsetKey: "unset-key",
}

// auditRefused logs a request that was refused for lack of a right. who may be nil.
func (s *Server) auditRefused(r *http.Request, who *access.Who, err error) {
	var p *httpProblem
	if !errors.As(err, &p) || p.Status != http.StatusUnauthorized && p.Status != http.StatusForbidden && p.audited == "" {
		return
	}
	if who == nil {
		who = &access.Who{}
	}
	name := cmp.Or(p.name, r.PathValue("name"), r.URL.Query().Get("name"))
	s.options.Audit(rights.Refused(*who, r, name, cmp.Or(p.audited, p.Detail)))
}

// auditFirst calls Options.AuditFirst, if set, before an operation. After an error, which is a
// *httpProblem, the operation must not be tried.
func (s *Server) auditFirst(a access.Record, who *access.Who, r *http.Request) error {
	if s.options.AuditFirst == nil {
		return nil
	}
	if err := s.options.AuditFirst(rights.By(a, *who, r)); err != nil {
		p := problem(http.StatusServiceUnavailable, "audit", "the audit log cannot be written, so nothing was changed").unchanged()
		p.Hint = "look at the server's log and at its disk"
		return p.after(10 * time.Second) // an earlier retry would only add a line to the server's log
	}
	return nil
}

// audited returns records of the operator's requests in a Go client's call, by their index.
func (s *Server) audited(ctx context.Context, rs *remoteSession, c protocol.Call) map[int]access.Record {
	var list map[int]access.Record
	for i := range c.Requests {
		q := &c.Requests[i]
		switch q.Kind {
		case protocol.Ask, protocol.Renew, protocol.Report, protocol.Cooldown:
			continue
		case protocol.SetLimit:
			if q.Auto != nil { // a controller's limit, see auditAdapted
				continue
			}
		case protocol.Release:
			if q.ID.Client == rs.client || slices.Contains(rs.livesOf(0), q.ID.Client) {
				continue
			}
		}
		a := access.Record{What: operations[q.Kind], Name: rs.name}
		if q.Kind == protocol.Revoke || q.Kind == protocol.Release {
			a.Permit = s.remotes.outerText(q.ID.String())
			h, _ := s.holder(ctx, rs.name, a.Permit) // the call reports the error
			a.Caller, a.Key = h.Client.Caller, h.Key
		}
		switch q.Kind {
		case protocol.SetLimit:
			a.Limit, a.Pools = q.Limit, q.Pools
			for i, n := range q.Caps {
				if n != 0 {
					a.Caps = append(a.Caps, make([]*int, i+1-len(a.Caps))...)
					a.Caps[i] = new(max(0, n))
				}
			}
		case protocol.SetKey, protocol.UnsetKey:
			a.Key, a.Cap, a.Share = engine.Key(q.Key), q.Cap, q.Share
		}
		if st, err := s.stateOf(ctx, rs.name); err == nil { // the call reports the error
			a = view.Before(a, st)
		}
		if list == nil {
			list = map[int]access.Record{}
		}
		list[i] = a
	}
	return list
}

// auditAdapted logs a change of the limit by a controller. It skips requests with an unchanged
// limit, which a controller sends all the time.
func (s *Server) auditAdapted(rs *remoteSession, c protocol.Call, reply protocol.Reply, who *access.Who, r *http.Request) {
	before := rs.limit
	rs.limit = reply.Limit
	for i := range min(len(c.Requests), len(reply.Answers)) {
		q := &c.Requests[i]
		if q.Auto != nil && reply.Answers[i].Status == protocol.Done && before != 0 && before != q.Limit {
			s.options.Audit(rights.By(access.Record{What: "adapt", Name: rs.name, Limit: q.Limit, Was: &access.Rule{Limit: before}, Result: "done"}, *who, r))
		}
	}
}

func resultOf(reply protocol.Reply, i int, err error) string {
	switch {
	case err != nil:
		return rights.ResultOf(err)
	case i >= len(reply.Answers):
		return "overtaken by a newer call"
	}
	switch reply.Answers[i].Status {
	case protocol.Gone:
		return "gone"
	case protocol.InUse:
		return "in-use"
	case protocol.TooMany:
		return "too many pools"
	}
	return "done"
}
