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
	name := r.URL.Query().Get("name")
	if err := engine.ValidateName(name); err != nil {
		return err
	}
	if err := s.checkSees(who, name); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(r.Context(), stepTime)
	defer cancel()
	reports, err := s.reportsOf(ctx, name)
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, reports)
}

// reportsOf reads the reports of a semaphore from the engine.
func (s *Server) reportsOf(ctx context.Context, name string) (protocol.Reports, error) {
	inner, err := s.engine.Open(name, s.self, func(protocol.Notification) {})
	if err != nil {
		return protocol.Reports{}, err
	}
	defer func() { _ = inner.Close() }()
	reporting, ok := inner.(protocol.Reporting)
	if !ok {
		return protocol.Reports{}, nil
	}
	return reporting.Reports(ctx)
}

// checkReport checks a report or a controller's limit.
func checkReport(q *protocol.Request) error {
	switch {
	case (q.Kind == protocol.Report) != (q.Totals != nil):
		return &engine.ArgumentError{What: "report", Value: q.Kind, Want: "totals in a report, and nowhere else"}
	case q.Kind == protocol.SetLimit && q.Auto != nil:
		return engine.ValidateLimit(q.Limit)
	}
	return nil
}
