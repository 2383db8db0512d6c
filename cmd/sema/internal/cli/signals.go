package cli

import (
	"os"
	"os/signal"
)

// signals catches the signals of caught. To begin takes a third of a
// millisecond, so that is done beside other work.
type signals struct {
	C     chan os.Signal
	begun chan struct{}
}

func catchSignals() *signals {
	s := &signals{C: make(chan os.Signal, 64), begun: make(chan struct{})}
	go func() {
		signal.Notify(s.C, caught()...)
		close(s.begun)
	}()
	return s
}

// wait returns when no signal ends the program any more.
func (s *signals) wait() { <-s.begun }

func (s *signals) stop() {
	s.wait()
	signal.Stop(s.C)
}
