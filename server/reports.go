package server

import (
	"context"
	"net/http"

	"sema/engine"
)

// engineReports is what the holders of a semaphore have reported, for a Go client.
func (s *Server) engineReports(w http.ResponseWriter, r *http.Request, who *Who) error {
	name := r.URL.Query().Get("name")
	if err := engine.ValidateName(name); err != nil {
		return err
	}
	if err := s.sees(who, name); err != nil {
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

// reportsOf is what is reported as the engine has it.
func (s *Server) reportsOf(ctx context.Context, name string) (engine.Reports, error) {
	inner, err := s.engine.Open(name, s.self, func(engine.Notification) {})
	if err != nil {
		return engine.Reports{}, err
	}
	defer func() { _ = inner.Close() }()
	reporting, ok := inner.(engine.Reporting)
	if !ok {
		return engine.Reports{}, nil
	}
	return reporting.Reports(ctx)
}

// checkReport says whether a report, or a controller's limit, can be stored.
func checkReport(q *engine.Request) error {
	switch {
	case (q.Kind == engine.Report) != (q.Totals != nil):
		return &engine.ArgumentError{What: "report", Value: q.Kind, Want: "totals in a report, and nowhere else"}
	case q.Kind == engine.SetLimit && q.Auto != nil:
		return engine.ValidateLimit(q.Limit)
	}
	return nil
}
