//go:build unix

package redistest

import "syscall"

// Stop freezes the server (SIGSTOP): connections stay open, nothing answers.
func (s *Server) Stop() { s.signal(syscall.SIGSTOP) }

// Continue wakes a frozen server (SIGCONT).
func (s *Server) Continue() { s.signal(syscall.SIGCONT) }

func (s *Server) signal(sig syscall.Signal) {
	s.tb.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.cmd == nil {
		s.tb.Fatalf("redistest: %v to a server that does not run", sig)
	}
	if err := s.cmd.Process.Signal(sig); err != nil {
		s.tb.Fatalf("redistest: %v: %v", sig, err)
	}
}
