package cli

import (
	"context"
	"errors"
	"os"
	"os/signal"
	"syscall"
	"time"
)

// signals catches the signals of caught. To begin takes a third of a
// millisecond, so that is done beside other work.
type signals struct {
	C     chan os.Signal
	begun chan struct{} // closed when no signal ends the program any more
}

func catchSignals() *signals {
	s := &signals{C: make(chan os.Signal, 64), begun: make(chan struct{})}
	go func() {
		signal.Notify(s.C, caught()...)
		// Else Go ends the program by it when nobody reads its messages any more, and the guard kills the command.
		signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
		close(s.begun)
	}()
	return s
}

func (s *signals) stop() {
	<-s.begun
	signal.Stop(s.C)
}

// sleep waits, and ends early with the program's end by a signal.
func (s *signals) sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case sig := <-s.C:
		return bySignal(sig)
	case <-ctx.Done():
		return bySignal(syscall.SIGTERM)
	}
}

// untilSignal runs f. A signal of caught ends f's context, and the program then ends by
// that signal; by a second one at once.
func untilSignal(ctx context.Context, f func(context.Context) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, caught()...)
	go func() {
		defer signal.Stop(signals)
		select {
		case s := <-signals:
			cancel(bySignal(s))
		case <-ctx.Done():
		}
	}()
	err := f(ctx)
	if stopped, ok := errors.AsType[*exit](context.Cause(ctx)); ok {
		return stopped
	}
	return err
}
