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
// It reads lines: "group N", "until N" (nanoseconds of the monotonic clock,
// which all processes share) and "done".
type guard struct {
	cmd  *exec.Cmd
	pipe *os.File
}

const guardArgument = "__guard"

// startGuard starts the helper. A nil guard does nothing.
func startGuard() (*guard, error) {
	read, write, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer func() { _ = read.Close() }()
	// Not os.Executable: that file may have been replaced by a newer version.
	cmd := exec.Command("/proc/self/exe", guardArgument)
	cmd.Args[0], cmd.Dir, cmd.Env = os.Args[0], "/", []string{}
	cmd.Stdin = read
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // out of reach of the terminal's signals
	if err := cmd.Start(); err != nil {
		_ = write.Close()
		return nil, err
	}
	return &guard{cmd, write}, nil
}

// watch names the group to be killed.
func (g *guard) watch(p *process) { g.send("group", int64(p.group)) }

// until moves the moment at which the group is killed.
func (g *guard) until(deadline time.Time) {
	var clock unix.Timespec
	if unix.ClockGettime(unix.CLOCK_MONOTONIC, &clock) != nil {
		return
	}
	// The clock is read first: a pause in between makes the moment earlier.
	g.send("until", clock.Nano()+int64(time.Until(deadline)))
}

// dismiss has the helper end: there is nothing to be killed any more.
func (g *guard) dismiss() { g.send("done", 0) }

func (g *guard) send(word string, n int64) {
	if g != nil {
		_, _ = fmt.Fprintf(g.pipe, "%s %d\n", word, n) // if it was killed, we go on without
	}
}

// close waits for the helper's end.
func (g *guard) close() {
	if g != nil {
		g.dismiss() // the command may not have been started at all
		_ = g.pipe.Close()
		_ = g.cmd.Wait()
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
	group := 0
	kill := func() {
		if group > 1 {
			_ = unix.Kill(-group, unix.SIGKILL)
		}
	}
	var overdue <-chan time.Time
	for {
		select {
		case line, open := <-orders:
			if !open {
				kill()
				return exitOK, true
			}
			word, number, _ := strings.Cut(line, " ")
			n, _ := strconv.ParseInt(number, 10, 64)
			switch word {
			case "group":
				group = int(n)
			case "until":
				overdue = time.After(untilMonotonic(n))
			case "done":
				return exitOK, true
			}
		case <-overdue:
			kill()
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
