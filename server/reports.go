package server

import (
	"context"

	"sema/engine"
	"sema/internal/protocol"
)

// reports returns the reports of a semaphore.
func (s *Server) reports(ctx context.Context, name string) (all protocol.Reports, err error) {
	err = s.withSession(ctx, name, func(ctx context.Context, inner protocol.Session) error {
		if reporting, ok := inner.(protocol.Reporting); ok {
			all, err = reporting.Reports(ctx)
		}
		return err
	})
	return all, err
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
