package redistest

// Stop fails: Windows knows no SIGSTOP.
func (s *Server) Stop() { s.tb.Fatalf("redistest: a process cannot be stopped on Windows") }

// Continue fails: Windows knows no SIGCONT.
func (s *Server) Continue() { s.tb.Fatalf("redistest: a process cannot be continued on Windows") }
