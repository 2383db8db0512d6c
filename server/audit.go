package server

import (
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"sema/engine"
)

// AuditLog writes down what operators did, one line of JSON for each. Create it
// with NewAuditLog; it is safe for concurrent use.
type AuditLog struct {
	mu  sync.Mutex
	out io.Writer
	log *slog.Logger
}

// NewAuditLog makes an audit log. out gets the lines; nil: nobody. log is told
// as well, and of lines that cannot be written; nil: nobody.
func NewAuditLog(out io.Writer, log *slog.Logger) *AuditLog {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	return &AuditLog{out: out, log: log}
}

// Record writes a line.
func (l *AuditLog) Record(a AuditRecord) {
	l.log.Info("operator", "who", a.Who, "from", a.From, "what", a.What, "name", a.Name, "permit", a.Permit, "limit", a.Limit, "result", a.Result)
	if l.out == nil {
		return
	}
	line, err := json.Marshal(a)
	if err != nil {
		return // cannot happen: texts and numbers
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, err := l.out.Write(append(line, '\n')); err != nil {
		l.log.Error("the audit log cannot be written", "error", err)
	}
}

// AuditRecord is a line of the audit log. Fields may be added; none changes its
// meaning.
type AuditRecord struct {
	Time   time.Time `json:"time"`
	Who    string    `json:"who"`              // name of the token; "local" without tokens
	From   string    `json:"from"`             // address of the other end: a proxy's, behind one
	What   string    `json:"what"`             // limit, unset-limit, pause, unpause, revoke, release, remove
	Name   string    `json:"name"`             // of the semaphore
	Permit string    `json:"permit,omitempty"` // revoke, release
	Limit  int       `json:"limit,omitempty"`  // limit
	Result string    `json:"result"`           // done, gone, in-use, forbidden; else the error
}

func (s *Server) audit(r *http.Request, who *Who, a AuditRecord) {
	a.Time, a.Who, a.From = time.Now().UTC(), who.Name, r.RemoteAddr
	s.auditLog.Record(a)
}

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
		a := AuditRecord{What: operations[q.Kind], Name: rs.name, Result: resultOf(reply, i, err)}
		if q.Kind == engine.Revoke || q.Kind == engine.Release {
			a.Permit = s.remotes.outerText(q.ID.String())
		}
		if q.Kind == engine.SetLimit {
			a.Limit = q.Limit
		}
		s.audit(r, who, a)
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
