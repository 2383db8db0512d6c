package cli

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"time"

	"sema/cmd/sema/internal/guard"
)

// The pauses between two runs of --ready.
const (
	firstPause   = time.Second
	longestPause = 30 * time.Second
)

// notReady is a permit that was given back, because --ready has failed under it.
type notReady struct{ code int }

func (e *notReady) Error() string { return fmt.Sprintf("--ready ended with exit code %d", e.code) }

// check runs a shell command under the permit. If it fails, the permit is given back, and the error is a *notReady.
// Another error is the end of sema.
func (s *supervisor) check(ctx context.Context, c guard.Command, ready string) (err error) {
	if c.Path, err = exec.LookPath("sh"); err != nil {
		return notStarted("sh", err)
	}
	c.Args = []string{"sh", "-c", "exec </dev/null\n" + ready} // what is on standard input is the command's
	s.checks = true
	code, err := s.guarded(ctx, c)
	s.checks = false
	switch {
	case err != nil:
		return err
	case s.signalled != nil:
		s.giveBack()
		return s.signalled
	case s.stopping || s.overdue:
		return s.settle(code)
	case s.Err() != nil: // and --on-lost=warn has let it run on
		return &exit{exitLost, fmt.Errorf("%q: %w; --ready had not ended", s.name, s.giveBack())}
	case code == exitOK:
		s.command.Wait()
		s.command, s.told = nil, time.Time{}
		return nil
	}
	s.giveBack()
	return &notReady{code}
}

// untilReady calls once until --ready does not fail. Between two calls it sleeps without a permit, so others are served. The time
// since the first call counts as waited in the next one.
func (p *program) untilReady(ctx context.Context, f *runFlags, name string, signals *signals, once func() error) error {
	came, wait := time.Now(), f.wait
	for pause := firstPause; ; pause = min(2*pause, longestPause) {
		err := once()
		not, ok := errors.AsType[*notReady](err)
		switch left := wait - time.Since(came); {
		case !ok:
			return err
		case f.noWait || f.waitGiven && left <= pause:
			return &exit{f.conflictCode, usage("a longer --wait", "%q: not ready in time: %v", name, not)}
		case f.waitGiven:
			f.wait = left - pause
		}
		p.say("%q: %v; asking again in %v", name, not, pause)
		if err := signals.sleep(ctx, pause); err != nil {
			return err
		}
		f.came = came
		if f.replace != "" && p.newer(ctx, f, name, came) {
			return &exit{f.conflictCode, fmt.Errorf("%q: replaced by a newer run, which came while this one was not ready", name)}
		}
	}
}
