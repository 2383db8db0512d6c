package server

import (
	"net/http"

	"sema/access"
	"sema/engine"
)

// operations are what the audit log calls the kinds of requests.
var operations = map[engine.Kind]string{
	engine.Revoke: "revoke", engine.SetLimit: "limit", engine.UnsetLimit: "unset-limit", engine.Remove: "remove",
	engine.Pause: "pause", engine.Unpause: "unpause", engine.Release: "release",
}

// auditCall writes down what a Go client's call did as an operator's.
func (s *Server) auditCall(rs *remoteSession, c engine.Call, reply engine.Reply, err error, who *Who, r *http.Request) {
	for i := range c.Requests {
		q := &c.Requests[i]
		switch q.Kind {
		case engine.Ask, engine.Renew:
			continue
		case engine.Release:
			if q.ID.Client == rs.as || len(rs.was) > 0 && rs.had(q.ID.Client) || q.ID.Client == rs.client {
				continue
			}
		}
		a := access.Record{What: operations[q.Kind], Name: rs.name, Result: resultOf(reply, i, err)}
		if q.Kind == engine.Revoke || q.Kind == engine.Release {
			a.Permit = s.remotes.outerText(q.ID.String())
		}
		if q.Kind == engine.SetLimit {
			a.Limit = q.Limit
		}
		s.options.Audit(a.By(*who, r))
	}
}

// had reports whether an earlier life of the session had this name.
func (rs *remoteSession) had(as string) bool {
	for _, l := range rs.was {
		if l.As == as {
			return true
		}
	}
	return false
}

func resultOf(reply engine.Reply, i int, err error) string {
	switch {
	case err != nil:
		return plain(err)
	case i >= len(reply.Answers):
		return "overtaken by a newer call"
	}
	switch reply.Answers[i].Status {
	case engine.Gone:
		return "gone"
	case engine.InUse:
		return "in-use"
	}
	return "done"
}
