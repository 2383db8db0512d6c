package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"sema"
	"sema/cmd/sema/internal/guard"
	"sema/engine"
)

const runHelp = `Take a permit, run a command, give the permit back.

  sema run -n 3 downloads -- curl -O https://example.org/file
  sema run --no-wait backup -- restic backup /home

The command runs without a shell, on the same terminal and with the same files.
The exit code is the command's. sema renews the permit while the command runs.
If the permit is lost, all processes of the command get TERM, then KILL, and the
exit code is 76. The command sees SEMA_NAME, SEMA_PERMIT, SEMA_TOKEN, SEMA_LIMIT,
SEMA_SLOT and SEMA_HELD in its environment.

sema help run-details says more: environment, signals, loss, processes.`

type runFlags struct {
	takeFlags
	killAfter time.Duration
	onLost    string
	slots     bool
	ready     string
	coolOn    []int
	cooldown  time.Duration
	adaptFlags
}

func (p *program) runCommand() *cobra.Command {
	f := &runFlags{}
	cmd := &cobra.Command{
		Use:   "run [flags] NAME -- COMMAND [ARG...]",
		Short: "Run a command while holding a permit",
		Long:  runHelp,
		ValidArgsFunction: func(cmd *cobra.Command, args []string, start string) ([]string, cobra.ShellCompDirective) {
			if len(args) > 0 {
				return nil, cobra.ShellCompDirectiveDefault // what the shell itself offers
			}
			return p.complete("NAME")(cmd, args, start)
		},
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
			if err := f.check(p, cmd); err != nil {
				return err
			}
			return p.run(cmd, f, args[0], args[1:])
		},
	}
	f.takeFlags.register(cmd)
	f.adaptFlags.register(cmd)
	choiceFlag(cmd, &f.onLost, "on-lost", "kill", "when the permit is lost: kill the command, or warn and let it run on", "kill", "warn")
	cmd.Flags().Var(durationOf(&f.killAfter, 5*time.Second), "kill-after", "when the permit is lost: longest time from TERM to KILL; the lease may shorten it")
	cmd.Flags().BoolVar(&f.slots, "slots", false, "give the command an index of its own in $SEMA_SLOT")
	cmd.Flags().StringVar(&f.ready, "ready", "", "a shell command that is run under the permit first; while it fails, give the permit back and wait again, in the old place")
	cmd.Flags().Var(&choice{&f.replace, "replace", []string{"waiting", "running"}}, "replace", "the newest of a key counts: those of the same --key that still wait end with the conflict exit code; =running stops earlier commands, too")
	cmd.Flag("replace").NoOptDefVal = "waiting"
	cmd.Flags().IntSliceVar(&f.coolOn, "cooldown-on", nil, "exit codes after which nobody is granted a permit for --cooldown")
	cmd.Flags().Var(durationOf(&f.cooldown, 30*time.Second), "cooldown", "with --cooldown-on: for how long; at most 10m")
	lessUsed(cmd, "ready", "replace", "cooldown-on", "cooldown", "adapt", "overload-exit", "on-lost", "kill-after", "slots")
	return cmd
}

func (f *runFlags) check(p *program, cmd *cobra.Command) error {
	if f.killAfter < 0 {
		return usage("--kill-after 5s", "--kill-after %v is negative", f.killAfter)
	}
	if err := f.takeFlags.check(p, cmd); err != nil {
		return err
	}
	if f.replace == "running" && f.tries() {
		return usage("--wait 30s", "--replace=running waits for the end of an earlier command, and may not with --no-wait")
	}
	if f.cooldown <= 0 || f.cooldown > engine.MaxCooldown || cmd.Flags().Changed("cooldown") && len(f.coolOn) == 0 {
		return usage("--cooldown-on 75 --cooldown 30s", "--cooldown %v needs --cooldown-on, and is up to %v", f.cooldown, engine.MaxCooldown)
	}
	if err := checkCodes("cooldown-on", f.coolOn); err != nil {
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
	defer guard.Adopt()()

	return p.untilReady(cmd.Context(), f, name, signals, func() error {
		return p.runOnce(cmd.Context(), f, name, path, words, signals)
	})
}

// runOnce takes a permit and runs the command, unless f.ready fails under the permit.
func (p *program) runOnce(ctx context.Context, f *runFlags, name, path string, words []string, signals *signals) error {
	grace := graceOf(f.lease, f.killAfter)
	o := sema.Options{Margin: grace.margin, Slots: f.slots, Label: cmp.Or(f.label, labelOf(words)), Adapt: f.is}
	h, err := p.take(ctx, &f.takeFlags, name, o, signals)
	if err != nil {
		return err
	}
	s := &supervisor{
		program: p, holding: h, name: name, lease: f.lease, grace: grace,
		warn: f.onLost == "warn", overload: f.overload, coolOn: f.coolOn, cooldown: f.cooldown, signals: signals,
	}
	defer func() { s.command.Wait() }() // for what ends while the engine is closed
	defer h.close()

	c := guard.Command{Path: path, Args: words, Env: p.commandEnv(h, name, f.slots), Ignore: alsoIgnored()}
	if e, ok := h.engine.(interface{ Life() (*os.File, error) }); ok {
		if c.Life, err = e.Life(); err != nil && f.verbose {
			p.say("%q: the permit may end before the command when sema is killed: %v", name, err)
		}
		defer func() { _ = c.Life.Close() }() // before h.close, which removes what tells of our life
	}
	if f.ready != "" {
		if err := s.check(ctx, c, f.ready); err != nil {
			return err
		}
	}
	return s.run(ctx, c)
}

// commandEnv is the environment of a command under a permit.
func (p *program) commandEnv(h *holding, name string, slots bool) []string {
	ours := []string{
		"SEMA_NAME=" + name,
		"SEMA_PERMIT=" + h.ID(),
		"SEMA_TOKEN=" + strconv.FormatInt(h.Token(), 10),
		"SEMA_LIMIT=" + strconv.Itoa(h.limit),
		heldVariable + "=" + strings.TrimSpace(p.getenv(heldVariable)+" "+h.ID()),
		"SEMA_SLOT=" + strconv.Itoa(h.Slot()),
	}
	env := slices.DeleteFunc(slices.Clone(p.env), func(outer string) bool {
		name, _, _ := strings.Cut(outer, "=")
		return slices.ContainsFunc(ours, func(own string) bool { return strings.HasPrefix(own, name+"=") })
	})
	if !slots {
		ours = ours[:len(ours)-1]
	}
	return append(env, ours...)
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
