package local

import "errors"

// Kill is for systems that have signals, as are Freeze and Thaw.
func (s *Server) Kill() error { return errors.ErrUnsupported }

// Freeze is for systems that have signals.
func (s *Server) Freeze() error { return errors.ErrUnsupported }

// Thaw is for systems that have signals.
func (s *Server) Thaw() error { return errors.ErrUnsupported }
