package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"time"

	"sema"
)

// grace is how much time a command has to stop when its permit is lost.
type grace struct {
	margin time.Duration // the permit's context ends this long before its lease can have
	spare  time.Duration // the group is killed this long before the lease can have ended
	after  time.Duration // from TERM to KILL, at most
}

// graceOf shares out a lease. The kernel needs a moment to end a group that
// was killed, and we one to get to it: a twentieth of the lease.
func graceOf(lease, killAfter time.Duration) grace {
	g := grace{spare: min(lease/20, 500*time.Millisecond), after: killAfter}
	g.margin = min(killAfter+g.spare, lease/4)
	return g
}

// supervisor runs a command under a permit.
type supervisor struct {
	*program
	*holding
	name    string
	grace   grace
	warn    bool // on loss, let it run on
	signals <-chan os.Signal

	command *process
	guard   *guard
	verbose bool
	lease   time.Duration
	told    time.Time // the deadline the guard knows

	stopping bool // the permit was lost, and the command told to end
}

// run starts the command, sees it through and gives the permit back.
func (s *supervisor) run(ctx context.Context, cmd *exec.Cmd) error {
	select {
	case sig := <-s.signals: // it came between the permit and the command
		if ends(sig) {
			return (&interrupted{sig}).asExit()
		}
	default:
	}
	guard, err := startGuard(s.ID())
	if err != nil && s.verbose {
		s.say("no guard process, so a kill -9 of sema may leave some of the command's processes running: %v", err)
	}
	s.guard = guard
	defer guard.dismiss() // if the command does not start
	s.command, err = startProcess(cmd, guard.watch, func() bool { return s.warn || s.Err() == nil })
	if err != nil {
		return notStarted(cmd.Args[0], err)
	}
	code := s.watch(ctx)
	s.command.close()
	acted := guard.dismiss()
	return s.settle(code, acted)
}

// watch waits for the command's end, and ends it when the permit is lost.
func (s *supervisor) watch(ctx context.Context) (code int) {
	lost, cancelled := s.Context().Done(), ctx.Done()
	var kill <-chan time.Time
	// Renewals are noticed by looking, several times between two.
	look := time.NewTicker(max(s.lease/16, 10*time.Millisecond))
	defer look.Stop()
	s.extend()
	for {
		select {
		case code = <-s.command.done:
			if s.stopping {
				s.outlive(kill)
			}
			return code
		case sig := <-s.signals:
			s.command.signal(sig)
		case <-cancelled:
			cancelled = nil
			s.command.terminate()
		case <-lost:
			lost = nil
			if s.warn {
				s.say("%q: %v; the command runs on without a permit", s.name, s.Err())
				continue
			}
			s.command.terminate()
			s.stopping, kill = true, time.After(s.grace.untilKill(time.Now(), s.Deadline()))
			s.say("%q: %v; stopping the command", s.name, s.Err())
		case <-kill:
			kill = nil
			s.command.kill()
		case text := <-s.notes:
			s.say("%s", text)
		case <-look.C:
			s.extend()
		}
	}
}

// untilKill is how long a command that was told to stop may take: no longer
// than its grace, and not into the moment the lease can end. The deadline is
// the one the permit had.
func (g grace) untilKill(now, deadline time.Time) time.Duration {
	return max(0, min(g.after, deadline.Add(g.margin-g.spare).Sub(now)))
}

// lingering is how long killed processes are waited for. They may hang in the
// kernel, or be dead without anybody having taken notice.
const lingering = 5 * time.Second

// outlive waits until the rest of a stopped command's group is gone too, and
// kills it in time. kill is nil if that has been done.
func (s *supervisor) outlive(kill <-chan time.Time) {
	var enough <-chan time.Time
	end := func() {
		kill, enough = nil, time.After(lingering)
		s.command.kill()
	}
	if kill == nil {
		end() // whoever joined the group since
	}
	poll := time.NewTicker(5 * time.Millisecond)
	defer poll.Stop()
	for !s.command.gone() {
		select {
		case <-kill:
			end()
		case <-enough:
			s.say("%q: some of the command's processes were killed and do not end", s.name)
			return
		case <-s.signals: // it is being stopped already
		case <-poll.C:
		}
	}
}

// extend has the guard know of a renewal.
func (s *supervisor) extend() {
	deadline := s.Deadline()
	if s.warn || s.Err() != nil || deadline.Equal(s.told) {
		return
	}
	s.told = deadline
	// Half of the spare time: the guard acts only if we do not.
	s.guard.until(deadline.Add(s.grace.margin - s.grace.spare/2))
}

// settle gives the permit back and decides about the exit code.
func (s *supervisor) settle(code int, guardActed bool) error {
	err := s.Release()
	switch {
	case guardActed:
		return &exit{exitLost, fmt.Errorf("%q: the command was killed: sema itself had been stopped for too long to be sure of the permit", s.name)}
	case s.stopping:
		return &exit{code: exitLost} // said before
	case errors.Is(err, sema.ErrLost) && !s.warn:
		return &exit{exitLost, fmt.Errorf("%q: %w; the command had ended by itself, with exit code %d", s.name, err, code)}
	case err != nil && !errors.Is(err, sema.ErrLost):
		s.say("%q: the permit could not be given back, it comes back with its lease: %v", s.name, err)
	}
	if code == exitOK {
		return nil
	}
	return &exit{code: code}
}
