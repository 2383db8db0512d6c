package cli

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// guard is a helper process that kills a command's process group when sema
// cannot: because sema was killed, which ends the pipe between the two, or
// because sema was stopped and let the moment pass at which the lease may end.
//
// It reads lines: "permit ID", before the command is started; then "group N",
// "until N" (nanoseconds of the monotonic clock, which all processes share) and
// "done".
type guard struct {
	cmd   *exec.Cmd
	pipe  *os.File // nil: closed
	acted bool
}

const guardArgument = "__guard"

// startGuard starts the helper, for the command that will run under a permit.
// A nil guard does nothing.
func startGuard(permit string) (*guard, error) {
	read, write, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer func() { _ = read.Close() }()
	// Not os.Executable: that file may have been replaced by a newer version.
	cmd := exec.Command("/proc/self/exe", guardArgument)
	cmd.Args[0], cmd.Dir = os.Args[0], "/"
	cmd.Stdin = read
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // out of reach of the terminal's signals
	if err := cmd.Start(); err != nil {
		_ = write.Close()
		return nil, err
	}
	g := &guard{cmd: cmd, pipe: write}
	g.send("permit", permit)
	return g, nil
}

// watch names the group to be killed.
func (g *guard) watch(group int) { g.send("group", group) }

// until moves the moment at which the group is killed.
func (g *guard) until(deadline time.Time) {
	var clock unix.Timespec
	if unix.ClockGettime(unix.CLOCK_MONOTONIC, &clock) != nil {
		return
	}
	// The clock is read first: a pause in between makes the moment earlier.
	g.send("until", clock.Nano()+int64(time.Until(deadline)))
}

// dismiss has the helper end, since there is nothing to be killed any more, and
// says whether it had to act.
func (g *guard) dismiss() (acted bool) {
	if g == nil {
		return false
	}
	if g.pipe != nil {
		g.send("done", 0)
		_ = g.pipe.Close()
		g.pipe = nil
		_ = g.cmd.Wait() // the exit code says it
		g.acted = g.cmd.ProcessState.ExitCode() == exitLost
	}
	return g.acted
}

func (g *guard) send(word string, value any) {
	if g != nil && g.pipe != nil {
		_, _ = fmt.Fprintf(g.pipe, "%s %v\n", word, value) // if it was killed, we go on without
	}
}

// helperMain is the helper's main, if the arguments ask for it.
func helperMain(args []string, stdin io.Reader) (code int, ok bool) {
	if len(args) != 1 || args[0] != guardArgument {
		return 0, false
	}
	signal.Ignore(syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT)
	// "killall -9 sema" is not for this one.
	_ = os.WriteFile("/proc/self/comm", []byte("sema-guard"), 0)
	orders := make(chan string)
	go func() { // ends with the process
		lines := bufio.NewScanner(stdin)
		for lines.Scan() {
			orders <- lines.Text()
		}
		close(orders)
	}()
	group, permit := 0, ""
	kill := func() {
		if group > 1 {
			_ = unix.Kill(-group, unix.SIGKILL)
		} else if permit != "" {
			killByPermit(permit)
		}
	}
	var overdue <-chan time.Time
	code = exitOK
	for {
		select {
		case line, open := <-orders:
			if !open {
				kill()
				return exitOK, true
			}
			word, value, _ := strings.Cut(line, " ")
			n, _ := strconv.ParseInt(value, 10, 64)
			switch word {
			case "permit":
				permit = value
			case "group":
				group = int(n)
			case "until":
				overdue = time.After(untilMonotonic(n))
			case "done":
				return code, true
			}
		case <-overdue:
			kill()
			code = exitLost
		}
	}
}

func untilMonotonic(n int64) time.Duration {
	var clock unix.Timespec
	if unix.ClockGettime(unix.CLOCK_MONOTONIC, &clock) != nil {
		return 0
	}
	return time.Duration(n - clock.Nano())
}

// killByPermit is for a sema that died between the start of its command and
// telling the group: the command's first process died with it, but may have
// started others, and all of them know the permit from their environment.
func killByPermit(permit string) {
	entry := "\x00SEMA_PERMIT=" + permit + "\x00"
	for range 10 { // those found may be starting others right now
		found := false
		list, _ := os.ReadDir("/proc") // without it, nothing can be done
		for _, d := range list {
			pid, err := strconv.Atoi(d.Name())
			if err != nil {
				continue
			}
			environ, _ := os.ReadFile("/proc/" + d.Name() + "/environ") // gone, or somebody else's
			if strings.Contains("\x00"+string(environ), entry) {
				found = true
				_ = unix.Kill(pid, unix.SIGKILL)
			}
		}
		if !found {
			return
		}
	}
}
