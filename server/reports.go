package server

import (
	"context"
	"net/http"

	"sema/access"
	"sema/engine"
)

// engineReports answers a Go client with the reports of a semaphore.
func (s *Server) engineReports(w http.ResponseWriter, r *http.Request, who *access.Who) error {
	name, err := s.nameOf(r, who)
	if err != nil {
		return err
	}
	var reports engine.Reports
	err = s.withSession(r.Context(), name, func(ctx context.Context, inner engine.Session) error {
		reporting, ok := inner.(engine.Reporting)
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

func checkReport(q *engine.Request) error {
	switch {
	case (q.Kind == engine.Report) != (q.Totals != nil):
		return &engine.ArgumentError{What: "report", Value: q.Kind, Want: "totals in a report, and nowhere else"}
	case q.Kind == engine.SetLimit && q.Auto != nil:
		return engine.ValidateLimit(q.Limit)
	}
	return nil
}
