package server

import (
	"context"
	"net/http"

	"sema/access"
	"sema/engine"
	"sema/internal/protocol"
)

// engineReports answers a Go client with the reports of a semaphore.
func (s *Server) engineReports(w http.ResponseWriter, r *http.Request, who *access.Who) error {
	name, err := s.nameOf(r, who)
	if err != nil {
		return err
	}
	var reports protocol.Reports
	err = s.withSession(r.Context(), name, func(ctx context.Context, inner protocol.Session) error {
		reporting, ok := inner.(protocol.Reporting)
		if !ok {
			return nil
		}
		reports, err = reporting.Reports(ctx)
		return err
	})
	if err != nil {
		return err
	}
	return writeJSON(w, reports)
}

func checkReport(q *protocol.Request) error {
	switch {
	case (q.Kind == protocol.Report) != (q.Totals != nil):
		return &engine.ArgumentError{What: "report", Value: q.Kind, Want: "totals in a report, and nowhere else"}
	case q.Kind == protocol.SetLimit && q.Auto != nil:
		return engine.ValidateLimit(q.Limit)
	}
	return nil
}
