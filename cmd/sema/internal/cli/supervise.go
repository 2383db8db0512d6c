package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"syscall"
	"time"

	"sema"
	"sema/cmd/sema/internal/guard"
)

// grace is how much time a command has to stop when its permit is lost.
type grace struct {
	margin time.Duration // the permit's context ends this long before its lease can have
	spare  time.Duration // the command is killed this long before the lease can have ended
	after  time.Duration // from TERM to KILL, at most
}

// graceOf shares out a lease. The kernel needs a moment to end processes that
// were killed, and we one to get to it: a twentieth of the lease.
func graceOf(lease, killAfter time.Duration) grace {
	g := grace{spare: min(lease/20, 500*time.Millisecond), after: killAfter}
	g.margin = min(killAfter+g.spare, lease/4)
	return g
}

// supervisor runs a command under a permit.
type supervisor struct {
	*program
	*holding
	name     string
	grace    grace
	warn     bool  // on loss, let it run on
	overload []int // exit codes that say that the limit was too much
	coolOn   []int // and those after which nobody is granted a permit for the cooldown
	cooldown time.Duration
	signals  *signals

	command *guard.Process
	lease   time.Duration
	told    time.Time // the deadline the guard knows

	stopping bool // the permit was lost, and the command told to end
	overdue  bool // the guard killed it
	broken   bool // the guard died, and the command with it

	checks    bool  // the command is that of --ready: a signal ends all of it
	signalled *exit // by the first signal that came while the command ran
}

// run starts the command, sees it through and gives the permit back.
func (s *supervisor) run(ctx context.Context, c guard.Command) error {
	select {
	case sig := <-s.signals.C: // it came between the permit and the command
		return bySignal(sig)
	default:
	}
	code, err := s.guarded(ctx, c)
	if err != nil {
		return err
	}
	return s.settle(code)
}

// guarded starts a command and watches it until its end.
func (s *supervisor) guarded(ctx context.Context, c guard.Command) (code int, err error) {
	c.Held = func() bool { return s.warn || s.Err() == nil }
	if s.command, err = guard.Start(c); err != nil {
		return 0, notStarted(c.Args[0], err)
	}
	defer s.command.Close()
	if code, err = s.watch(ctx); err != nil {
		return 0, notStarted(c.Args[0], err)
	}
	return code, nil
}

// watch waits for the command's end, and ends it when the permit is lost: then it waits
// until all of it is gone. A process of another user cannot be killed: it has the permit
// as long as it runs. A signal ends the wait for it; the guard then goes on with it. The
// error is that the command was not started.
func (s *supervisor) watch(ctx context.Context) (code int, err error) {
	lost, cancelled := s.Context(context.WithoutCancel(ctx)).Done(), ctx.Done()
	var kill, enough <-chan time.Time
	end := func() {
		kill, enough = nil, time.After(lingering)
		s.command.Kill()
	}
	// Renewals are noticed by looking, several times between two.
	look := time.NewTicker(max(s.lease/16, 10*time.Millisecond))
	defer look.Stop()
	s.extend()
	ended, gone, said := false, false, false
	for !ended || (s.stopping || s.overdue) && !gone {
		select {
		case e := <-s.command.Events:
			switch e.Kind {
			case guard.Failed:
				return 0, e.Err
			case guard.Ended:
				code, ended, said = e.Code, true, false
				if s.stopping && kill == nil {
					end() // whoever joined since
				}
			case guard.Gone:
				gone = true
			case guard.Overdue:
				s.overdue = true
				end() // the guard does it already
			case guard.Broken:
				s.command.Kill() // all its processes: on Linux the guard does it, guard/child.go
				if ended {
					return code, nil
				}
				s.broken = true
				return -int(syscall.SIGKILL), nil
			}
		case sig := <-s.signals.C:
			s.signalled = cmp.Or(s.signalled, bySignal(sig))
			if s.checks && !ended {
				s.command.Terminate()
				if !s.stopping {
					s.stopping, kill = true, time.After(s.grace.after)
				}
			} else if !ended {
				s.command.Signal(sig.(syscall.Signal))
			} else if said {
				return code, nil
			}
		case <-cancelled:
			cancelled, s.signalled = nil, cmp.Or(s.signalled, bySignal(syscall.SIGTERM))
			s.command.Terminate()
		case <-lost:
			lost = nil
			if s.warn {
				s.say("%v; the command runs on without a permit", s.Err())
				continue
			}
			s.command.Terminate()
			s.stopping, kill = true, time.After(s.grace.untilKill(time.Now(), s.Deadline()))
			s.say("%v; stopping the command%s", s.Err(), s.by(ctx))
		case <-kill:
			end()
		case <-enough:
			enough, said = nil, true
			s.say("%q: some of the command's processes were killed and do not end; they may be another user's (sudo). Waiting for them", s.name)
		case text := <-s.notes:
			s.say("%s", text)
		case <-look.C:
			s.extend()
		}
	}
	return code, nil
}

// untilKill is how long a command that was told to stop may take: no longer
// than its grace, and not into the moment the lease can end. The deadline is
// the one the permit had.
func (g grace) untilKill(now, deadline time.Time) time.Duration {
	return max(0, min(g.after, deadline.Add(g.margin-g.spare).Sub(now)))
}

// lingering is how long killed processes are waited for in silence.
const lingering = 5 * time.Second

// extend has the guard know of a renewal.
func (s *supervisor) extend() {
	deadline := s.Deadline()
	if s.warn || s.Err() != nil || deadline.Equal(s.told) {
		return
	}
	s.told = deadline
	// Half of the spare time: the guard acts only if we do not.
	s.command.Until(deadline.Add(s.grace.margin - s.grace.spare/2))
}

// giveBack releases the permit, and says so if that fails. The error is that of a permit that was lost.
func (s *supervisor) giveBack() error {
	err := s.Release()
	if err != nil && !errors.Is(err, sema.ErrLost) {
		s.say("%q: the permit could not be given back, it comes back with its lease: %v", s.name, err)
	}
	return err
}

// settle gives the permit back and decides about the exit code.
func (s *supervisor) settle(code int) error {
	if slices.Contains(s.coolOn, shellCode(code)) && !s.stopping {
		s.RetryAfter(s.cooldown)
	}
	if slices.Contains(s.overload, shellCode(code)) && !s.stopping {
		s.Overloaded()
	}
	err := s.giveBack()
	switch {
	case s.stopping:
		return &exit{code: exitLost} // said before
	case s.overdue:
		return &exit{exitLost, fmt.Errorf("%q: the command was killed: sema itself had been stopped for too long to be sure of the permit", s.name)}
	case errors.Is(err, sema.ErrLost) && !s.warn:
		return &exit{exitLost, fmt.Errorf("%q: %w; the command had ended by itself, with exit code %d", s.name, err, shellCode(code))}
	}
	if s.broken {
		s.say("%q: the process that guards the command was killed, and the command with it", s.name)
	}
	if code == exitOK {
		return nil
	}
	return &exit{code: code}
}
