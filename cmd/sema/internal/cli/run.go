package cli

import (
	"errors"
	"fmt"
	"io/fs"
	"os/exec"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"sema"
)

const runHelp = `Take a permit, run a command, give the permit back.

  sema run -n 3 downloads -- curl -O https://example.org/file
  sema run --no-wait backup -- restic backup /home

The command is run directly, without a shell, as the shell would run it: in the
same process group, with the same terminal, standard input, output and error,
and with every other file that sema inherited. A script without #! is run by
/bin/sh. Whatever sema has to say goes to standard error. On a terminal, a wait
of more than a second shows a line with position, holders and time.

The command sees
  SEMA_NAME    the semaphore
  SEMA_PERMIT  the id of its permit
  SEMA_TOKEN   the fencing token: larger than that of any earlier permit
  SEMA_LIMIT   the limit as stored
  SEMA_SLOT    with --slots: an index from 0 to limit-1 that no other such permit has
  SEMA_HELD    the ids of all permits it runs under, that of an outer sema run first
With --adapt 2:200 the limit finds itself: an exit code of --overload-exit says
that whatever is limited had too much to do, so that the limit shrinks; while all
goes well and somebody waits, it grows. See sema adapt.

A run within a run of the same name that could never get its permit, because the
outer one has it, is refused with exit code 64.

Signals. What the terminal or "kill %1" sends to the job reaches the command
directly; ^C, ^\, ^Z, bg and fg are as without sema. INT, TERM, HUP, QUIT, USR1
and USR2 for sema alone go to the command's first process. When the command dies
of a signal, sema dies of the same one, so that loops and scripts stop. While
sema waits, any of these signals leaves the queue at once; a second one ends
sema even if the engine does not answer. A signal that was ignored when sema
started stays ignored: INT in a script's background jobs, HUP under nohup.

Loss. The permit is renewed while the command runs. When that fails for so long
that the lease may end, or somebody revokes the permit, all processes of the
command get TERM, and KILL after --kill-after, but in any case KILL before the
lease can have ended: TERM comes up to a quarter of the lease before that
moment, so a grace of 5 seconds takes a lease of at least 22 seconds. The exit
code is then 76, whatever the command's was. With --on-lost=warn the command
runs on without a permit, and its own exit code counts.

A Redis that lost its data (restarted without persistence, flushed, failed over
to a replica that had not heard) has forgotten the permit; sema learns of it at
its next renewal, after a third of the lease at most. Until then, and until the
command has been stopped, Redis can let others in beside it: for up to a third
of the lease and --kill-after, 15 seconds with the defaults. The exit code is
76 as well if the command has ended meanwhile.

Whose processes. On Linux a small guard process is the command's parent. To it
belongs every process that the command started, in whatever group or session:
one that called setsid, a daemon too. When sema is killed (kill -9), the guard
kills them all at once; on one host the permit is not back before the last of
them has ended, even if the guard was killed as well. The guard also kills them
when sema was stopped (SIGSTOP, ^Z) for longer than the lease. What runs as
another user (sudo, a setuid program) cannot be killed: it is waited for, and
keeps a permit on one host until its lease ends. When the command's first
process ends by itself, the permit is given back; what it left behind in the
background runs on without one. As the first process of a container sema takes
notice of the ends of all orphans.

On macOS and BSD the command has a process group of its own, which gets the
terminal; only that group is killed, and it runs on when sema is killed. On
Windows there are no process groups and signals: on loss the command's first
process is killed.`

type runFlags struct {
	takeFlags
	killAfter time.Duration
	onLost    string
	slots     bool
	adaptFlags
}

func (p *program) runCommand() *cobra.Command {
	f := &runFlags{}
	cmd := &cobra.Command{
		Use:               "run [flags] NAME -- COMMAND [ARG...]",
		Short:             "Run a command while holding a permit",
		Long:              help(runHelp, exitCodesHelp),
		ValidArgsFunction: p.completeCommand,
		Args: func(cmd *cobra.Command, args []string) error {
			try := p.command("run", "NAME -- COMMAND [ARG...]")
			switch dash := cmd.ArgsLenAtDash(); {
			case len(args) == 0 || dash == 0:
				return usage(try, "there is no NAME")
			case dash < 0:
				return usage(try, "there is no -- between NAME and COMMAND")
			case dash > 1:
				return usage(try, "there is more than the NAME before --")
			case len(args) == 1:
				return usage(try, "there is no COMMAND after --")
			}
			return checkName(args[0])
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := f.check(cmd); err != nil {
				return err
			}
			return p.run(cmd, f, args[0], args[1:])
		},
	}
	f.takeFlags.register(cmd)
	f.adaptFlags.register(cmd)
	cmd.Flags().Var(durationOf(&f.killAfter, 5*time.Second), "kill-after", "when the permit is lost: time from TERM to KILL, at most; shorter if the lease demands it")
	cmd.Flags().StringVar(&f.onLost, "on-lost", "kill", "when the permit is lost: kill the command, or warn and let it run on")
	offerValues(cmd, "on-lost", "kill", "warn")
	cmd.Flags().BoolVar(&f.slots, "slots", false, "give the command an index of its own in $SEMA_SLOT")
	return cmd
}

func (f *runFlags) check(cmd *cobra.Command) error {
	switch {
	case f.killAfter < 0:
		return usage("--kill-after 5s", "--kill-after %v is negative", f.killAfter)
	case f.onLost != "kill" && f.onLost != "warn":
		return usage("kill or warn", "there is no --on-lost=%s", printable(f.onLost, 60))
	}
	if err := f.takeFlags.check(cmd); err != nil {
		return err
	}
	return f.adaptFlags.check(cmd, &f.takeFlags)
}

func (p *program) run(cmd *cobra.Command, f *runFlags, name string, words []string) error {
	if url := p.rawURL(); url == "" || strings.HasPrefix(url, "file:") {
		// Next to nothing is done at the same time here, and waking threads for
		// it costs more than it gains.
		runtime.GOMAXPROCS(1)
	}
	// A signal must not end sema behind the back of server or command.
	signals := catchSignals()
	defer signals.stop()
	path, err := exec.LookPath(words[0])
	if err != nil && !errors.Is(err, exec.ErrDot) { // a PATH with "." means it
		return notStarted(words[0], err) // before anything is waited for
	}
	defer adopt()()

	grace := graceOf(f.lease, f.killAfter)
	o := sema.Options{Margin: grace.margin, Slots: f.slots, Label: f.label, Adapt: f.is}
	if o.Label == "" {
		o.Label = labelOf(words)
	}
	h, err := p.take(cmd.Context(), &f.takeFlags, name, o, signals)
	if err != nil {
		return err
	}
	defer h.close()

	c := command{path: path, args: words, env: p.commandEnv(h, name), life: h.life, ignore: alsoIgnored()}
	if f.slots {
		c.env = append(c.env, "SEMA_SLOT="+strconv.Itoa(h.Slot()))
	}
	s := &supervisor{
		program: p, holding: h, name: name, lease: f.lease, grace: grace,
		warn: f.onLost == "warn", overload: f.overload, signals: signals,
	}
	return s.run(cmd.Context(), c)
}

// commandEnv is the environment of a command under a permit.
func (p *program) commandEnv(h *holding, name string) []string {
	held := strings.TrimSpace(p.getenv(heldVariable) + " " + h.ID())
	env := slices.DeleteFunc(slices.Clone(p.env), func(entry string) bool { return strings.HasPrefix(entry, "SEMA_SLOT=") })
	for _, v := range [][2]string{
		{"SEMA_NAME", name},
		{"SEMA_PERMIT", h.ID()},
		{"SEMA_TOKEN", strconv.FormatInt(h.Token(), 10)},
		{"SEMA_LIMIT", strconv.Itoa(h.limit)},
		{heldVariable, held},
	} {
		env = slices.DeleteFunc(env, func(entry string) bool { return strings.HasPrefix(entry, v[0]+"=") })
		env = append(env, v[0]+"="+v[1])
	}
	return env
}

// notStarted is a command that does not run: exit code 127 if there is none,
// as in a shell, else 126.
func notStarted(command string, err error) error {
	code := exitNotExecutable
	if errors.Is(err, exec.ErrNotFound) || errors.Is(err, fs.ErrNotExist) {
		code = exitNotFound
	}
	var path *fs.PathError
	var look *exec.Error
	var number syscall.Errno
	switch {
	case errors.As(err, &look):
		err = look.Err
	case errors.As(err, &path):
		err = path.Err
	case errors.As(err, &number):
		err = number
	}
	return &exit{code, fmt.Errorf("%s: %w", printable(command, 100), err)}
}
