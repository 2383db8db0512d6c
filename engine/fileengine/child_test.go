//go:build linux

package fileengine

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"sema/engine"
)

// The test binary runs itself as the processes of the tests.
const (
	roleVar  = "SEMA_FILE_TEST_ROLE"
	dirVar   = "SEMA_FILE_TEST_DIR"
	limitVar = "SEMA_FILE_TEST_LIMIT"
	holdVar  = "SEMA_FILE_TEST_HOLD"
	lifeVar  = "SEMA_FILE_TEST_LIFE"

	sharedVar = "SEMA_FILE_TEST_SHARED"
)

// PlayRole makes this process what the test that started it wants. It reports
// false if no test has.
func PlayRole() bool {
	switch os.Getenv(roleVar) {
	case "":
		return false
	case "holder":
		play(holder)
	case "storm":
		play(storm)
	case "locked":
		play(locked)
	case "stamp":
		play(stamp)
	}
	return true
}

func play(role func() error) {
	if err := role(); err != nil {
		fmt.Println("error", err)
		os.Exit(1)
	}
}

func monotonic() int64 {
	var t unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &t)
	return t.Nano()
}

// holder waits for a permit, says so, keeps it for a while or until it is told
// to go on, and releases it.
func holder() error {
	limit, _ := strconv.Atoi(os.Getenv(limitVar))
	hold, _ := time.ParseDuration(os.Getenv(holdVar))
	e, err := New(os.Getenv(dirVar), &Options{Shared: os.Getenv(sharedVar) != ""})
	if err != nil {
		return err
	}
	u, err := newUser(e, "x", limit)
	if err != nil {
		return err
	}
	r := u.ask(true)
	reply, err := u.call(r)
	if err != nil {
		return err
	}
	if reply.Answers[0].Status == engine.Queued {
		fmt.Println("queued")
		for err = errAskAgain; err == errAskAgain; {
			if err = u.await(r.ID); err == errAskAgain {
				var again engine.Reply
				if again, err = u.call(r); err == nil && again.Answers[0].Status == engine.Queued {
					err = errAskAgain
				}
			}
		}
		if err != nil {
			return err
		}
	}
	if os.Getenv(lifeVar) != "" {
		life, err := e.Life()
		if err != nil {
			return err
		}
		guard := exec.Command("sleep", "1000")
		guard.ExtraFiles = []*os.File{life}
		if err := guard.Start(); err != nil {
			return err
		}
		fmt.Println("guard", guard.Process.Pid)
	}
	fmt.Println("granted", monotonic())
	if hold >= 0 {
		time.Sleep(hold)
	} else if _, err := os.Stdin.Read(make([]byte, 1)); err != nil {
		return err
	}
	fmt.Println("releases", monotonic())
	if err := u.release(r.ID); err != nil {
		return err
	}
	return e.Close()
}

// child is a process with the role of a holder.
type child struct {
	cmd   *exec.Cmd
	in    io.WriteCloser
	lines chan string
	gone  func() // waits for its end
}

// start starts a holder. A negative hold waits for goOn.
func start(tb testing.TB, dir string, limit int, hold time.Duration) *child {
	tb.Helper()
	return startRole(tb, "holder", dir, limit, hold)
}

func startRole(tb testing.TB, role, dir string, limit int, hold time.Duration) *child {
	tb.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), roleVar+"="+role, dirVar+"="+dir, limitVar+"="+strconv.Itoa(limit), holdVar+"="+hold.String(), "GORACE=atexit_sleep_ms=0")
	return startCommand(tb, cmd)
}

func startCommand(tb testing.TB, cmd *exec.Cmd) *child {
	tb.Helper()
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	must(tb, err)
	in, err := cmd.StdinPipe()
	must(tb, err)
	must(tb, cmd.Start())
	c := &child{cmd: cmd, in: in, lines: make(chan string, 10)}
	var done sync.WaitGroup
	done.Go(func() {
		for s := bufio.NewScanner(out); s.Scan(); {
			c.lines <- s.Text()
		}
		close(c.lines)
	})
	c.gone = sync.OnceFunc(func() {
		for range c.lines {
		}
		done.Wait()
		_ = cmd.Wait()
	})
	tb.Cleanup(func() {
		_ = cmd.Process.Kill()
		c.gone()
	})
	return c
}

// says wants the next line to begin with a word, and returns the number after
// it.
func (c *child) says(tb testing.TB, word string) int64 {
	tb.Helper()
	select {
	case line, ok := <-c.lines:
		got, number, _ := strings.Cut(line, " ")
		if !ok || got != word {
			tb.Fatalf("process %d says %q instead of %q", c.cmd.Process.Pid, line, word)
		}
		n, _ := strconv.ParseInt(number, 10, 64)
		return n
	case <-time.After(time.Minute):
		tb.Fatalf("process %d does not say %q", c.cmd.Process.Pid, word)
		return 0
	}
}

func (c *child) goOn(tb testing.TB) {
	tb.Helper()
	_, err := c.in.Write([]byte{1})
	must(tb, err)
}

func (c *child) kill(tb testing.TB) { tb.Helper(); must(tb, c.cmd.Process.Signal(syscall.SIGKILL)) }

// cpu is the processor time of a process so far.
func (c *child) cpu(tb testing.TB) (used time.Duration) {
	tb.Helper()
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", c.cmd.Process.Pid))
	must(tb, err)
	for _, thread := range threads {
		stat, _ := os.ReadFile(thread) // a thread may end meanwhile
		ns, _, _ := strings.Cut(string(stat), " ")
		n, _ := strconv.ParseInt(ns, 10, 64)
		used += time.Duration(n)
	}
	return used
}
